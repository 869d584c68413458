"""Hits on the disk tier: large objects that memory has no room for, beside raw reads of the same file, past the kernel's cache."""

import re

from measure.fio import Job, fio
from rig import GIB, MIB, Rig, check

from . import servers
from .turns import cells, ratio, turns

SECTION = "disk"
MEMORY = 192 * MIB
DISK = 2 * GIB
# Slots lie behind the superblocks, the intent maps and the table (docs/design/disk-format.md).
HEAD_BYTES = 4 * MIB
RAW = Job("read", MIB, 4)


def measure(setting, report):
    with Rig() as rig:
        store = servers.origin(rig)
        port = servers.free_port()
        s3 = {"listen": f"127.0.0.1:{port}", "backend": f"http://127.0.0.1:{store.port}", "metadata_ttl": "1h"}
        cache = {"memory": f"{MEMORY // MIB}MiB", "disk": rig.path("cache"), "disk_size": f"{DISK // MIB}MiB", "sparse": False}
        forebay = rig.forebay({}, s3=s3, cache=cache)
        served, targets = servers.Served(forebay.process, port), servers.targets(rig, "large")
        requests = servers.LARGE_COUNT // servers.CLIENTS

        def get(name, _):
            if name == "raw":
                return fio(rig.path("cache"), RAW, setting.seconds, GIB, HEAD_BYTES, label="raw") | {"cpu_ms_per_gib": 0}
            return servers.load(served, targets, servers.CLIENTS, requests, servers.LARGE_BYTES)

        # Admitted at the second access; a store to the disk may be left out while it is busy.
        for _ in range(8):
            before = _from_store(forebay)
            get("forebay", served)
            if _from_store(forebay) - before < servers.LARGE_COUNT // 8:
                break
        before = _from_store(forebay)
        rounds = turns(setting, SECTION, {"forebay": served, "raw": None}, get)
        misses = (_from_store(forebay) - before) / (setting.rounds * servers.LARGE_COUNT)
        check(misses < 0.2, f"{misses:.2f} of the requests needed the store: these are no hits")
    cells(report, SECTION, rounds)
    report.cell(SECTION, server="forebay", requests_that_needed_the_store=round(misses, 3))
    report.bar("hits on the disk tier of raw reads", ratio(rounds, SECTION, "forebay", "raw", "bytes_per_s"), 0.9, True, "raw")


def _from_store(forebay):
    """Requests that the store was asked for bytes."""
    text = forebay.get("/metrics")[1]
    found = re.findall(r'^forebay_gateway_requests_total\{op="get",cache="(miss|partial|bypass)",status="2xx"\} (\d+)$', text, re.M)
    return sum(int(count) for _, count in found)
