"""fio: what is asked of it, and its answer in plain numbers."""

import json
from dataclasses import dataclass

from rig import run

# Every distinct command, for the report: the first time with all its words.
COMMANDS = {}


@dataclass(frozen=True)
class Job:
    """A load. `rw` is fio's; with `jobs` above 1 there are as many connections."""

    rw: str
    block_bytes: int
    depth: int
    jobs: int = 1
    mix_read_percent: int = 0

    @property
    def name(self):
        size = f"{self.block_bytes >> 10}k"
        mix = f"-{self.mix_read_percent}/{100 - self.mix_read_percent}" if self.mix_read_percent else ""
        return f"{self.rw}{mix}-{size}-depth{self.depth}" + (f"-{self.jobs}conn" if self.jobs > 1 else "")


def fio(target, job, seconds=None, size_bytes=None, offset_bytes=0, seed=1, repeat=True, label=None):
    """Runs a job against an NBD URI or a file and returns its numbers.

    Without `seconds` it ends when everything has been touched once. Without `repeat` no block is touched twice.
    """
    words = ["fio", "--name=job", f"--rw={job.rw}", f"--bs={job.block_bytes}", f"--iodepth={job.depth}", "--thread"]
    words += [f"--numjobs={job.jobs}", "--group_reporting", f"--randseed={seed}", "--output-format=json"]
    words += ["--lat_percentiles=1", "--clat_percentiles=0"]
    if str(target).startswith("nbd"):
        words += ["--ioengine=nbd", f"--uri={target}"]
    else:
        words += ["--ioengine=io_uring", "--direct=1", "--fixedbufs", "--registerfiles", f"--filename={target}"]
    if seconds:
        words += [f"--runtime={int(seconds * 1000)}ms", "--time_based"]
    if job.mix_read_percent:
        words += [f"--rwmixread={job.mix_read_percent}"]
    if size_bytes:
        words += [f"--size={size_bytes}"]
    words += [f"--offset={offset_bytes}"] if offset_bytes else []
    words += ["--norandommap"] if repeat else []
    COMMANDS.setdefault(label or job.name, " ".join(words))
    text = run(*words, seconds=600 + (seconds or 0)).stdout
    # The nbd engine prints a line of its own before the JSON.
    return numbers(json.loads(text[text.index("{"):])["jobs"][0])


def numbers(found):
    """Rates of reads and writes together; latencies of what there was more of, from before the submission: a submission
    that does the work (a kick of a virtual disk takes 10 us and more) is part of it."""
    read, write = found["read"], found["write"]
    main = read if read["total_ios"] >= write["total_ios"] else write
    percentile = main["lat_ns"].get("percentile", {})
    return {
        "iops": read["iops"] + write["iops"],
        "bytes_per_s": read["bw_bytes"] + write["bw_bytes"],
        "p50_us": percentile.get("50.000000", 0) / 1000,
        "p99_us": percentile.get("99.000000", 0) / 1000,
        "mean_us": main["lat_ns"]["mean"] / 1000,
    }
