"""1,000 objects of 4 KiB: requests a CPU second beside nginx's cache."""

from rig import Rig

from . import servers
from .turns import cells, ratio, turns

SECTION = "small"
CLIENTS = 32


def measure(setting, report):
    with Rig() as rig:
        store = servers.origin(rig)
        caches = {"forebay": servers.committed(rig, store, metadata_ttl="1h"), "nginx": servers.nginx_cache(rig, store)}
        targets = servers.targets(rig, "small")

        def get(_name, served):
            return servers.load(served, targets, CLIENTS, 200 if setting.quick else 3000, servers.SMALL_BYTES)

        for served in caches.values():
            for _ in range(2):
                servers.load(served, targets, servers.CLIENTS, servers.SMALL_COUNT // servers.CLIENTS, servers.SMALL_BYTES)
        rounds = turns(setting, SECTION, caches, get)
    cells(report, SECTION, rounds)
    name = "4 KiB hits a CPU second of nginx's"
    report.bar(name, ratio(rounds, SECTION, "forebay", "nginx", "requests_per_cpu_s"), 0.8, True, "nginx")
