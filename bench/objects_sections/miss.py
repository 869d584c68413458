"""What keeping costs: 1 GiB of large objects that are read for the first time, beside the same gateway that keeps nothing."""

from rig import Rig

from . import servers
from .turns import cells, ratio, turns

SECTION = "miss"


def measure(setting, report):
    with Rig() as rig:
        store = servers.origin(rig)
        targets = servers.targets(rig, "large")
        started = iter(range(1000))

        def get(name, header):
            # A gateway of its own for each run: what was kept is a hit the next time.
            with Rig() as inner:
                served = servers.committed(inner, store, name=f"forebay-{next(started)}")
                return servers.load(served, targets, servers.CLIENTS, servers.LARGE_COUNT // servers.CLIENTS, servers.LARGE_BYTES, header)

        servers.load(store, targets, servers.CLIENTS, servers.LARGE_COUNT // servers.CLIENTS, servers.LARGE_BYTES)
        rounds = turns(setting, SECTION, {"miss": None, "off": "Cache-Control: no-store"}, get)
    cells(report, SECTION, rounds)
    report.bar("misses of the rate without a cache", ratio(rounds, SECTION, "miss", "off", "bytes_per_s"), 0.95, True)
    report.bar("CPU of a miss of that without a cache", ratio(rounds, SECTION, "miss", "off", "cpu_ms_per_gib"), 1.15, False)
