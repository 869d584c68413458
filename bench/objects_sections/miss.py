"""What keeping costs: 1 GiB of large objects that are read for the first time, beside the same gateway that keeps nothing. For the picture also
the store itself, and hits."""

from rig import Rig

from . import servers
from .turns import cells, ratio, turns

SECTION = "miss"


def measure(setting, report, host=servers.HERE, section=SECTION, where=""):
    with Rig() as rig:
        store = servers.origin(rig, host)
        targets = servers.targets(rig, "large")
        started = iter(range(1000))

        def read(served, header=None):
            return servers.load(served, targets, servers.CLIENTS, servers.LARGE_COUNT // servers.CLIENTS, servers.LARGE_BYTES, header)

        def get(name, header):
            if name == "uncached":
                return read(store)
            # A gateway of its own for each run: what was kept is a hit the next time.
            with Rig() as inner:
                served = servers.committed(inner, store, name=f"forebay-{next(started)}", metadata_ttl="1h")
                if name == "hit":
                    read(served)
                return read(served, header)

        read(store)
        rounds = turns(setting, section, {"uncached": None, "off": "Cache-Control: no-store", "miss": None, "hit": None}, get)
    cells(report, section, rounds)
    report.bar(f"misses of the rate without a cache{where}", ratio(rounds, section, "miss", "off", "bytes_per_s"), 0.95, True)
    report.bar(f"CPU of a miss of that without a cache{where}", ratio(rounds, section, "miss", "off", "cpu_ms_per_gib"), 1.15, False)
