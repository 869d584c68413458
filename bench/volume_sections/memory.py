"""Hits in memory, over a unix socket, beside `nbdkit memory` and `qemu-nbd`."""

from measure import Job, compare
from measure.rounds import median, ratio
from rig import KIB, MIB

from . import servers

SECTION = "memory"
RANDOM_4K = Job("randread", 4 * KIB, 16)
RANDOM_4K_4 = Job("randread", 4 * KIB, 16, jobs=4)
RANDOM_64K = Job("randread", 64 * KIB, 16)
RANDOM_64K_4 = Job("randread", 64 * KIB, 16, jobs=4)
ALONE_4K = Job("randread", 4 * KIB, 1)
MIX_4K = Job("randrw", 4 * KIB, 16, mix_read_percent=70)


def measure(setting, report):
    size_bytes = (64 if setting.quick else 512) * MIB
    peers = {
        "forebay": servers.memory_only(size_bytes),
        "nbdkit-memory": servers.nbdkit_memory(size_bytes),
        "qemu-nbd": servers.qemu_nbd(size_bytes),
    }

    def before(name, target, _job):
        if name != "forebay":
            return None
        at_start = target.counters_at_rest()

        def after():
            now = target.counters()
            parts = {key: now[key] - at_start[key] for key in ("memory_hits", "disk_hits", "misses")}
            return {"hit_share": parts["memory_hits"] / max(1, sum(parts.values()))}

        return after

    jobs = [RANDOM_4K, RANDOM_4K_4, RANDOM_64K, RANDOM_64K_4, ALONE_4K, MIX_4K]
    if setting.quick:
        jobs.remove(MIX_4K)
        report.skipped(SECTION, f"--quick: {MIX_4K.name}, and qemu-nbd but for 4 KiB at depth 16: no bar asks for them")
    # Of qemu-nbd a bar wants two jobs only.
    wanted = lambda name, job: not setting.quick or name != "qemu-nbd" or job in (RANDOM_4K, RANDOM_4K_4)
    # Depth 1 is bimodal (client and server on one processor, or not): more starts than elsewhere.
    rounds = compare(setting, SECTION, setting.rounds + (0 if setting.quick else 2), peers, jobs, size_bytes, before, wanted=wanted)
    report.cells_of(SECTION, rounds)
    bars(report, rounds)


def bars(report, rounds):
    for job, connections in ((RANDOM_4K, 1), (RANDOM_4K_4, 4)):
        for peer, bar in (("nbdkit-memory", 1.0), ("qemu-nbd", 2.0)):
            value = ratio(rounds, job.name, "forebay", peer, "iops")
            report.bar(f"memory_hit_4k_{connections}conn_iops_vs_{peer}", value, bar, True, peer)
    for job, connections in ((RANDOM_64K, 1), (RANDOM_64K_4, 4)):
        value = ratio(rounds, job.name, "forebay", "nbdkit-memory", "iops")
        report.bar(f"memory_hit_64k_{connections}conn_iops_vs_nbdkit-memory", value, 0.95, True, "nbdkit-memory")
    ours, theirs = (median(rounds, ALONE_4K.name, server, "p99_us") for server in ("forebay", "nbdkit-memory"))
    report.bar("memory_hit_4k_depth1_p99_vs_nbdkit-memory", ours / theirs, 1.5, False, "nbdkit-memory")
