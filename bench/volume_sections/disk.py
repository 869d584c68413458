"""Hits on the disk tier: in process against raw reads of the same file, and over NBD against raw reads plus NBD."""

import json
import statistics
from dataclasses import replace

from measure import Job, Round, compare, fio
from measure.rounds import median, ratio
from measure.setting import example
from rig import KIB, MIB, Rig, run

from . import servers

DEPTHS = (1, 16, 64)
SIZES = (4 * KIB, 64 * KIB)
JOBS = [Job("randread", size, depth) for size in SIZES for depth in DEPTHS]
# Slots lie behind the superblocks, the intent maps and the table (docs/design/disk-format.md).
HEAD_BYTES = 4 * MIB


def size_of(job):
    return f"{job.block_bytes // KIB}k"


def jobs_of(setting, report, section):
    """Quick measures 4 KiB at depths 1 and 16, and says so."""
    if not setting.quick:
        return JOBS
    report.skipped(section, f"--quick: {', '.join(job.name for job in JOBS[2:])}")
    return JOBS[:2]


def measure_in_process(setting, report):
    """`crates/engine/examples/disk_hits.rs`: FILE BLOCK_BYTES DEPTH SECONDS FILL_BYTES; makes FILE a full cache disk and
    prints one JSON object with reads_per_second, p50_ns, p99_ns, misses, disk_hits."""
    section = "disk-in-process"
    program = example("engine", "disk_hits")
    if program is None:
        return report.skipped(section, "crates/engine/examples/disk_hits.rs is not there")
    fill_bytes = (128 if setting.quick else 1024) * MIB
    # The table of what was filled is written during the first tenths of a second.
    setting = replace(setting, seconds=max(0.5, setting.seconds))
    jobs = jobs_of(setting, report, section)
    rounds = []
    for number in range(setting.rounds):
        this = Round()
        with Rig() as rig:
            file = rig.path("cache")
            for job in jobs:
                this.put(job.name, "forebay", in_process(program, file, job, setting, fill_bytes))
                raw = fio(
                    file, job, setting.seconds, fill_bytes, HEAD_BYTES, setting.seed + number, label=f"{section} raw {job.name}"
                )
                this.put(job.name, "raw", raw)
        rounds.append(this)
        setting.say(f"{section}: round {number + 1} of {setting.rounds}")
    report.cells_of(section, rounds)
    for job in jobs:
        value = ratio(rounds, job.name, "forebay", "raw", "iops")
        report.bar(f"disk_hit_in_process_{size_of(job)}_depth{job.depth}_iops_vs_raw", value, 0.9, True, "raw")
    return None


def in_process(program, file, job, setting, fill_bytes):
    found = json.loads(run(program, file, job.block_bytes, job.depth, setting.seconds, fill_bytes).stdout.splitlines()[-1])
    hits = found["disk_hits"] / max(1, found["disk_hits"] + found["misses"])
    return {
        "iops": found["reads_per_second"],
        "bytes_per_s": found["reads_per_second"] * job.block_bytes,
        "p50_us": found["p50_ns"] / 1000,
        "p99_us": found["p99_ns"] / 1000,
        "hit_share": hits,
    }


def measure_over_nbd(setting, report):
    section = "disk-over-nbd"
    size_bytes = (128 if setting.quick else 1024) * MIB
    jobs = jobs_of(setting, report, section)
    disk = []

    def forebay(rig):
        backend = rig.backend("memory", str(size_bytes))
        fio(backend.uri(), servers.FILL, size_bytes=size_bytes, label="fill")
        # The memory tier keeps some thirtieth; two clients share the frames in transit, so that depth 64 finds its own.
        served = servers.Served(
            rig.forebay(
                {"v": backend},
                cache={"memory": "64MiB", "disk_size": f"{size_bytes * 3 // 2 // MIB}MiB", "sparse": False},
                limits={"clients_max": 2},
            )
        )
        served.warm(size_bytes)
        served.forebay.settle()
        disk[:] = [rig.path("forebay.cache")]
        return served

    peers = {"forebay": forebay, "raw": lambda _rig: RawFile(disk), "nbdkit-memory": servers.nbdkit_memory(size_bytes)}
    rounds = compare(setting, section, setting.rounds, peers, jobs, size_bytes, shares)
    report.cells_of(section, rounds)
    for job in jobs:
        bars(report, rounds, job)


class RawFile:
    """The very file of the cache disk, read past everything."""

    def __init__(self, disk):
        self.disk = disk

    @property
    def target(self):
        return self.disk[0]


def shares(name, target, _job):
    """How many parts of reads the disk answered."""
    if name != "forebay":
        return None
    at_start = target.counters_at_rest()

    def after():
        now = target.counters()
        parts = {key: now[key] - at_start[key] for key in ("memory_hits", "disk_hits", "misses")}
        return {"hit_share": parts["disk_hits"] / max(1, sum(parts.values()))}

    return after


def bars(report, rounds, job):
    name = f"disk_hit_over_nbd_{size_of(job)}_depth{job.depth}"
    if job.depth == 1:
        floor = statistics.median(
            this.get(job.name, "forebay", "p50_us")
            / (this.get(job.name, "raw", "p50_us") + this.get(job.name, "nbdkit-memory", "p50_us"))
            for this in rounds
        )
        return report.bar(f"{name}_p50_vs_raw+nbdkit-memory", floor, 1.1, False, "raw + nbdkit-memory")
    slower = min(("raw", "nbdkit-memory"), key=lambda peer: median(rounds, job.name, peer, "iops"))
    value = ratio(rounds, job.name, "forebay", slower, "iops")
    return report.bar(f"{name}_iops_vs_slower", value, 0.8, True, slower)
