"""64 objects of 16 MiB, 8 clients, all in memory, public, with a ttl: beside varnish and nginx with slices."""

from rig import Rig

from . import servers
from .turns import cells, median, ratio, turns

SECTION = "large"


def measure(setting, report):
    with Rig() as rig:
        store = servers.origin(rig)
        caches = {
            "forebay": servers.committed(rig, store, metadata_ttl="1h"),
            "nginx": servers.nginx_cache(rig, store),
            "varnish": servers.varnish(rig, store),
        }
        targets = servers.targets(rig, "large")
        requests = 4 if setting.quick else 24

        def get(_name, served, each=requests):
            return servers.load(served, targets, servers.CLIENTS, each, servers.LARGE_BYTES)

        for name, served in caches.items():
            for _ in range(2):
                get(name, served, servers.LARGE_COUNT // servers.CLIENTS)
        rounds = turns(setting, SECTION, caches, get)
    cells(report, SECTION, rounds)
    report.bar("16 MiB hits of varnish's", ratio(rounds, SECTION, "forebay", "varnish", "bytes_per_s"), 0.8, True, "varnish")
    report.bar("16 MiB hits of nginx's with slices", ratio(rounds, SECTION, "forebay", "nginx", "bytes_per_s"), 0.9, True, "nginx")
    report.bar("CPU ms for a GiB of hits", median(rounds, SECTION, "forebay", "cpu_ms_per_gib"), 200, False)
