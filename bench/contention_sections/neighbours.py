"""Three hosts, each with a cache of its own, on one link to the store: do they share it fairly, by themselves?

NetCAS claims so (section III-B, IV-D). Watched: Jain's index of their bytes from the back end (Jain et al., 1984), what
they get together of what the best common share gives, the worst host beside the cache alone, and how far each share wanders.
"""

import time

from measure.chart import lines
from rig import Rig

from . import shares
from .policies import CACHE_ONLY, OURS, STATIC_BEST, adaptive, fixed
from .site import Load, ready
from .steady import settle_of

SECTION = "neighbours"
HOSTS = 3
LOAD = Load(4, 16)
WATCHED_S = 30
# Enough for what one of them has in flight.
LITTLE_MEMORY = "64MiB"


class Watched:
    """A policy in all hosts, and what came of it."""

    def __init__(self, policy, ticks, begin, end):
        self.policy = policy
        self.ticks = ticks
        self.begin = begin
        self.end = end

    def rates(self):
        return [ticks.bytes_per_second(self.begin, self.end) for ticks in self.ticks]

    def total(self):
        return sum(self.rates())

    def jain(self):
        return jain([ticks.backend_bytes(self.begin, self.end) for ticks in self.ticks])

    def shares(self, number):
        """Second by second."""
        seconds = int(self.end - self.begin)
        ticks = self.ticks[number]
        return [ticks.disk_share(self.begin + second, self.begin + second + 1) for second in range(seconds)]

    def share_move(self):
        return max(max(self.shares(number)) - min(self.shares(number)) for number in range(HOSTS))


def jain(values):
    """1 if all are equal, 1 / n if one has everything; 1 if there is nothing."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def measure(setting, report):
    if setting.quick:
        return report.skipped(SECTION, "--quick")
    with Rig() as rig:
        _, sites = ready(rig, setting, setting.size_bytes // 2, HOSTS, LITTLE_MEMORY)
        percent, _ = shares.search(sites, LOAD, 1.0, 1.6)
        found = []
        for policy in [CACHE_ONLY, fixed(STATIC_BEST, percent), *adaptive(setting)]:
            found.append(watch(sites, policy, setting.scaled(WATCHED_S)))
            rates = ", ".join(f"{rate / 1e6:.0f}" for rate in found[-1].rates())
            setting.say(f"{SECTION} {policy.name}: {rates} MB/s, Jain {found[-1].jain():.3f}")
    tell(report, found, percent)
    return judge(report, found)


def watch(sites, policy, seconds):
    for site in sites:
        site.split(policy)
    settle = settle_of(policy) + 2.0
    running = [site.begin(LOAD, settle + seconds + 1.0) for site in sites]
    time.sleep(settle)
    begin = time.time()
    time.sleep(seconds)
    return Watched(policy, [one.end() for one in running], begin, begin + seconds)


def tell(report, found, percent):
    cache, best = found[0], found[1]
    rows = []
    for one in found:
        numbers = {
            "backend_jain": one.jain(),
            "of_best_static": one.total() / best.total(),
            "of_cache_only_min": min(one.rates()) / (cache.total() / HOSTS),
            "share_move_max": one.share_move(),
        }
        rounded = {key: round(value, 4) for key, value in numbers.items()}
        report.cell(
            SECTION,
            policy=one.policy.name,
            hosts=HOSTS,
            jobs=LOAD.jobs,
            depth=LOAD.depth,
            best_share=percent / 100,
            bytes_per_second=round(one.total()),
            **rounded,
        )
        rows.append([one.policy.name, f"{one.total() / 1e6:.0f}", *(f"{value:.3f}" for value in numbers.values())])
    head = ["policy", "MB/s", "Jain, back end", "of best static", "worst host, of cache", "share moves"]
    report.table(f"{HOSTS} hosts on one link; best common share {percent} %", head, rows)
    ours = next((one for one in found if one.policy.name == OURS), None)
    if ours:
        series = [(f"host {number + 1}", list(enumerate(ours.shares(number)))) for number in range(HOSTS)]
        report.plot(SECTION, lines("Each host's share of its cache disk, once settled", "seconds", "share", series, 1.05))


def judge(report, found):
    cache, best = found[0], found[1]
    ours = next((one for one in found if one.policy.name == OURS), None)
    if not ours:
        return
    report.bar("neighbours_backend_jain", ours.jain(), 0.95, True)
    report.bar("neighbours_of_best_static", ours.total() / best.total(), 0.95, True, STATIC_BEST)
    report.bar("neighbours_worst_of_cache_only", min(ours.rates()) / (cache.total() / HOSTS), 0.95, True, CACHE_ONLY.name)
    report.bar("neighbours_share_move_max", ours.share_move(), 0.05, False)
