"""Every policy through the same bad time: strangers on the link (NetCAS, Fig. 9), or a cache disk that is slow.

How: before, the best share that stays is searched in both conditions. Then each policy runs through the figure, from a
cold start: onset, clearance, end. What the best shares deliver in the mean of their condition is what a second of the
others is held against; `orthus-paper` is that of the free link, which is what NetCAS calls Orthus. The onset is the
moment iperf3 is started, so that its handshakes count against whoever is to follow.
"""

import contextlib
import time
from dataclasses import dataclass

from measure.chart import lines
from rig import GIB, Rig

from . import shares
from .policies import (
    BACKEND_ONLY, CACHE_ONLY, FORMULA, ORTHUS_PAPER, OURS, STATIC_CONTENDED, Policy, adaptive, fixed,
)
from .setting import DISK_BYTES_PER_SECOND
from .site import TICK_S, Load, ready

# A policy has this long to find the share of a new condition, and is then at this part of the best.
FIND_S = 1.0
FOUND = 0.95
# A better split than this is to be noticed.
GAIN = 1.05
SLOWED = 0.3


@dataclass(frozen=True)
class Figure:
    """`seconds`: onset, clearance, end, of the paper. `flows` of a sixteenth of the link, or a disk at `disk_factor`."""

    name: str
    load: Load
    flows: int = 0
    disk_factor: float = 1.0
    seconds: tuple = (20, 40, 60)
    size_bytes: int = 0
    search_s: tuple = (0.8, 1.6)


FIG_9A = Figure("9a", Load(4, 16), flows=10)
FIG_9B = Figure("9b", Load(16, 16), flows=10)
# What was written is not split until a sweep has flushed it: many pages, so that few are. Whole sweeps, of 2 s.
FIG_9C = Figure("9c", Load(16, 16, 70), flows=40, seconds=(35, 65, 100), size_bytes=2 * GIB, search_s=(2.0, 4.0))
SLOW_DISK = Figure("slow-disk", Load(4, 16), disk_factor=SLOWED)


class Trial:
    """A policy through a figure. `begun`, `onset`, `clearance`, `end` are seconds of the epoch."""

    def __init__(self, figure, policy, times, ticks, gained, strangers_bytes):
        self.strangers_bytes = strangers_bytes
        self.figure = figure
        self.policy = policy
        self.begun, self.onset, self.clearance, self.end = times
        self.ticks = ticks
        self.gained = gained

    def run(self):
        return self.ticks.bytes_per_second(self.begun, self.end)

    def free(self):
        """Once settled, before the onset."""
        return self.ticks.bytes_per_second((self.begun + self.onset) / 2, self.onset)

    def contended(self):
        return self.ticks.bytes_per_second(self.onset + FIND_S, self.clearance)

    def after(self, change):
        """In the second that begins one second after a change."""
        return self.ticks.bytes_per_second(change + FIND_S, change + FIND_S + 1.0)

    def seconds_to(self, bytes_per_second, begin, end):
        """Until three ticks together delivered enough; None if none did."""
        at = begin
        while at + 3 * TICK_S <= end:
            if self.ticks.bytes_per_second(at, at + 3 * TICK_S) >= FOUND * bytes_per_second:
                return round(at - begin, 2)
            at += TICK_S
        return None

    def series(self, value):
        """Points over the run, a fifth of a second each."""
        step, at, points = 2 * TICK_S, self.begun, []
        while at + step <= self.end:
            points.append((at + step - self.begun, value(at, at + step)))
            at += step
        return points


def measure_contention(setting, report):
    conduct(setting, report, "contention", [FIG_9A] if setting.quick else [FIG_9A, FIG_9B])


def measure_mixed(setting, report):
    if setting.quick:
        return report.skipped("mixed", "--quick")
    return conduct(setting, report, "mixed", [FIG_9C])


def measure_slow_disk(setting, report):
    if setting.quick:
        return report.skipped("slow-disk", "--quick")
    return conduct(setting, report, "slow-disk", [SLOW_DISK])


def conduct(setting, report, section, figures):
    trials = []
    with Rig() as rig:
        size_bytes = max(figure.size_bytes for figure in figures) or setting.size_bytes
        ground, [site] = ready(rig, setting, size_bytes)
        for figure in figures:
            found = all_through(setting, ground, site, figure)
            tell(setting, report, section, figure, found)
            trials += found
    judge(report, section, trials)


def all_through(setting, ground, site, figure):
    free, contended = best_shares(setting, ground, site, figure)
    setting.say(f"{figure.name}: best shares {free} % free, {contended} % contended")
    policies = [CACHE_ONLY, fixed(ORTHUS_PAPER, free), fixed(STATIC_CONTENDED, contended)]
    if setting.quick:
        policies += [Policy(OURS)]
    else:
        policies += [BACKEND_ONLY, fixed(FORMULA, formula(site, figure.load, 2.0)), *adaptive(setting)]
    trials = []
    for policy in policies:
        trials.append(through(setting, ground, site, figure, policy))
        last = trials[-1]
        setting.say(f"{figure.name} {policy.name}: free {last.free() / 1e6:.0f}, contended {last.contended() / 1e6:.0f} MB/s")
    return trials


@contextlib.contextmanager
def disturbed(ground, site, figure):
    strangers = ground.strangers_come(figure.flows, ground.link_bytes_per_second / 16) if figure.flows else None
    if figure.disk_factor != 1.0:
        site.disk.shape(DISK_BYTES_PER_SECOND * figure.disk_factor)
    try:
        yield
    finally:
        if strangers:
            strangers.stop()
        if figure.disk_factor != 1.0:
            site.disk.shape(DISK_BYTES_PER_SECOND)


def best_shares(setting, ground, site, figure):
    """The best share that stays, free and contended: percent."""
    if setting.quick:
        free = formula(site, figure.load, 1.0)
        with disturbed(ground, site, figure):
            contended = formula(site, figure.load, 1.0)
        return free, contended
    free, _ = shares.search([site], figure.load, *figure.search_s)
    with disturbed(ground, site, figure):
        contended, _ = shares.search([site], figure.load, *figure.search_s)
    return free, contended


def formula(site, load, seconds):
    """NetCAS' without congestion: in proportion to what each path delivers alone."""
    alone = []
    running = site.begin(load, 3600)
    for policy in (CACHE_ONLY, BACKEND_ONLY):
        site.split(policy)
        time.sleep(seconds / 2)
        alone.append(shares.total_rate([running], seconds))
    running.stop()
    return round(100 * alone[0] / sum(alone))


def through(setting, ground, site, figure, policy):
    onset, clearance, end = (setting.scaled(seconds) for seconds in figure.seconds)
    site.forebay.settle(60)
    site.split(policy)
    disk_before = site.disk_counters()
    running = site.begin(figure.load, end + 1.0)
    begun = time.time()
    wait_until(begun + onset)
    onset_at = time.time()
    strangers_before = ground.strangers_bytes()
    with disturbed(ground, site, figure):
        wait_until(begun + clearance)
        clearance_at = time.time()
    strangers_bytes = ground.strangers_bytes() - strangers_before
    ticks = running.end()
    disk_after = site.disk_counters()
    gained = {"slot_write_bytes": disk_after["slot_write_bytes"] - disk_before["slot_write_bytes"], **ticks.gained}
    return Trial(figure, policy, (begun, onset_at, clearance_at, begun + end), ticks, gained, strangers_bytes)


def wait_until(when):
    time.sleep(max(0.0, when - time.time()))


def beside(trials, trial, name):
    return next(other for other in trials if other.figure is trial.figure and other.policy.name == name)


def of_best(trials, trial):
    free = beside(trials, trial, ORTHUS_PAPER).free()
    contended = beside(trials, trial, STATIC_CONTENDED).contended()
    return {
        "free_of_best": trial.free() / free,
        "onset_of_best": trial.after(trial.onset) / contended,
        "contended_of_best": trial.contended() / contended,
        "clearance_of_best": trial.after(trial.clearance) / free,
        "onset_seconds": trial.seconds_to(contended, trial.onset, trial.clearance),
        "clearance_seconds": trial.seconds_to(free, trial.clearance, trial.end),
    }


def cell(trials, trial):
    figure = trial.figure
    written = trial.gained["write_bytes"]
    numbers = {
        **of_best(trials, trial),
        "contended_of_orthus_paper": trial.contended() / beside(trials, trial, ORTHUS_PAPER).contended(),
        "run_of_cache_only": trial.run() / beside(trials, trial, CACHE_ONLY.name).run(),
        "run_bytes_per_second": trial.run(),
        "free_bytes_per_second": trial.free(),
        "contended_bytes_per_second": trial.contended(),
        "free_disk_share": trial.ticks.disk_share((trial.begun + trial.onset) / 2, trial.onset),
        "contended_disk_share": trial.ticks.disk_share(trial.onset + FIND_S, trial.clearance),
    }
    return {
        "figure": figure.name,
        "policy": trial.policy.name,
        "jobs": figure.load.jobs,
        "depth": figure.load.depth,
        "read_share": figure.load.read_percent / 100,
        "flows": figure.flows,
        "disk_factor": figure.disk_factor,
        "free_best_share": beside(trials, trial, ORTHUS_PAPER).policy.percent / 100,
        "contended_best_share": beside(trials, trial, STATIC_CONTENDED).policy.percent / 100,
        **{key: value if value is None else round(value, 4) for key, value in numbers.items()},
        "strangers_bytes_per_second": round(trial.strangers_bytes / (trial.clearance - trial.onset)),
        "slot_bytes_of_written": round(trial.gained["slot_write_bytes"] / written, 4) if written else None,
        "slot_write_bytes": trial.gained["slot_write_bytes"],
        "split_failovers": trial.gained["split_failovers"],
        "hedged_reads": trial.gained["hedged_reads"],
        "misses": trial.gained["misses"],
    }


def tell(setting, report, section, figure, trials):
    """Cells, a table and two pictures of a figure."""
    for trial in trials:
        report.cell(section, **cell(trials, trial))
    onset, clearance, _ = (setting.scaled(seconds) for seconds in figure.seconds)
    what = f"{figure.flows} flows" if figure.flows else f"a cache disk at {figure.disk_factor:g}"
    title = f"Fig. {figure.name}: {figure.load.name}, {what} from {onset:g} s to {clearance:g} s"
    throughput = [
        (trial.policy.name, [(at, value / 1e6) for at, value in trial.series(trial.ticks.bytes_per_second)]) for trial in trials
    ]
    report.plot(f"{figure.name}", lines(title, "seconds", "MB/s", throughput))
    moving = [trial for trial in trials if trial.policy.percent is None]
    by_share = [(trial.policy.name, trial.series(trial.ticks.disk_share)) for trial in moving]
    report.plot(f"{figure.name}-share", lines(title, "seconds", "share of the cache disk", by_share, 1.05))
    report.table(title, HEAD, [row(trials, trial) for trial in trials])


HEAD = [
    "policy", "free, of best", "1 s after onset", "contended, of best", "1 s after clearance", "onset found after s",
    "clearance found after s", "contended, of orthus-paper", "run, of cache", "run, MB/s",
]


def row(trials, trial):
    of = of_best(trials, trial)
    values = [of[key] for key in ("free_of_best", "onset_of_best", "contended_of_best", "clearance_of_best")]
    seconds = [of[key] for key in ("onset_seconds", "clearance_seconds")]
    values += [trial.contended() / beside(trials, trial, ORTHUS_PAPER).contended()]
    values += [trial.run() / beside(trials, trial, CACHE_ONLY.name).run()]
    texts = [f"{value:.3f}" for value in values]
    texts[4:4] = ["-" if value is None else f"{value:.1f}" for value in seconds]
    share = "" if trial.policy.percent is None else f" ({trial.policy.percent} %)"
    return [trial.policy.name + share, *texts, f"{trial.run() / 1e6:.0f}"]


def judge(report, section, trials):
    ours = [trial for trial in trials if trial.policy.name == OURS]
    if not ours:
        return
    found = [of_best(trials, trial) for trial in ours]
    runs, gains = [], []
    for trial in ours:
        others = [other for other in trials if other.figure is trial.figure and other is not trial and other.policy.name != "climb"]
        runs += [(trial.run() / other.run(), other.policy.name) for other in others]
        best = beside(trials, trial, ORTHUS_PAPER).free(), beside(trials, trial, STATIC_CONTENDED).contended()
        # Where the best split, always known at once, would gain more than a twentieth.
        gains += [
            (trial.run() / other.run(), other.policy.name) for other in others if blended(trial, best) > GAIN * other.run()
        ]
    at = section.replace("-", "_")
    report.bar(f"{at}_onset_of_best_min", min(one["onset_of_best"] for one in found), FOUND, True)
    report.bar(f"{at}_clearance_of_best_min", min(one["clearance_of_best"] for one in found), FOUND, True)
    report.bar(f"{at}_run_of_baselines_min", min(runs)[0], 0.99, True, min(runs)[1])
    if gains:
        report.bar(f"{at}_run_of_baselines_where_split_gains_min", min(gains)[0], 1.0, True, min(gains)[1])
    reading = [trial for trial in trials if trial.figure.load.read_percent == 100]
    if reading:
        report.bar(f"{at}_slot_bytes_written_by_reads", max(trial.gained["slot_write_bytes"] for trial in reading), 0, False)
    directions(report, at, trials, ours[0])


def blended(trial, best):
    """What the best share of each condition would deliver over the whole run."""
    contended_s = trial.clearance - trial.onset
    whole_s = trial.end - trial.begun
    return (best[0] * (whole_s - contended_s) + best[1] * contended_s) / whole_s


def directions(report, at, trials, ours):
    cache, free_best = beside(trials, ours, CACHE_ONLY.name), beside(trials, ours, ORTHUS_PAPER)
    report.direction(f"{at}_best_free_over_cache_only", free_best.free() / cache.free(), 1.2)
    report.direction(f"{at}_ours_run_over_cache_only", ours.run() / cache.run(), 1.05)


__all__ = ["Policy", "conduct", "measure_contention", "measure_mixed", "measure_slow_disk"]
