"""4 KiB random writes behind a millisecond: write-back, the same log with a back end that takes nothing, and write-through; and
what the log writes for them."""

import statistics

from measure import Job, fio
from rig import GIB, KIB, Rig

from . import servers

DEPTHS = (1, 4, 32)
# Room for 524,288 records: three seconds of any of them must not fill it.
LOG_BYTES = 8 * GIB


def measure(setting, report):
    found = {(kind, depth): [] for kind in ("through", "back", "idle") for depth in DEPTHS}
    overhead = {depth: [] for depth in DEPTHS}
    for number in range(setting.rounds):
        for kind in ("through", "back", "idle"):
            with Rig() as rig:
                back = servers.delayed(rig)
                served = servers.forebay(rig, back, "through" if kind == "through" else "back", LOG_BYTES, timeout="60s")
                for depth in DEPTHS:
                    numbers, wrote = run(setting, served, back, kind, depth, setting.seed + number)
                    found[kind, depth].append(numbers)
                    if kind == "idle":
                        overhead[depth].append(wrote)
        setting.say(f"random: round {number + 1} of {setting.rounds}")
    for (kind, depth), rounds in found.items():
        middle = {key: round(statistics.median(it[key] for it in rounds), 3) for key in rounds[0]}
        report.cell("random", job=f"randwrite-4k-depth{depth}", server=kind, rounds=len(rounds), **middle)

    def ratio(kind, peer, depth):
        pairs = zip(found[kind, depth], found[peer, depth])
        return statistics.median(one["iops"] / other["iops"] for one, other in pairs)

    report.bar("random_4k_depth4_back_vs_through", ratio("back", "through", 4), 5, True, "write-through")
    report.bar("random_4k_depth32_back_vs_idle_back_end", ratio("back", "idle", 32), 0.8, True, "the log alone")
    report.bar("log_bytes_per_byte_depth32", statistics.median(overhead[32]), 1.05, False)
    report.bar("log_bytes_per_byte_depth1", statistics.median(overhead[1]), 1.125, False)


def run(setting, served, back, kind, depth, seed):
    """The numbers of a run, and what the log wrote for each byte."""
    job = Job("randwrite", 4 * KIB, depth)
    label = f"random {job.name} on {kind}"
    load = lambda: fio(served.uri(), job, seconds=setting.seconds, size_bytes=4 * GIB, seed=seed, label=label)
    if kind == "through":
        return load(), 0
    servers.followed(served)
    before = servers.log_of(served)
    if kind == "back":
        numbers = load()
    else:
        with servers.Stopped(back):
            numbers = load()
    after = servers.log_of(served)
    groups, payload = (after[key] - before[key] for key in ("group_bytes", "payload_bytes"))
    return numbers, groups / max(1, payload)
