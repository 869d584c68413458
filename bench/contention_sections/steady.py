"""Policies compared in one condition that does not change, switched under a load that goes on, in interleaved rounds."""

import statistics
import time

from .policies import OURS

# A policy that has something to find has longer; all are measured for as long.
SETTLE_S = 1.0
FIND_S = 4.0
MEASURE_S = 2.0


class Steady:
    """What each policy delivered in each round, and the share of the cache disk."""

    def __init__(self, rates, shares):
        self.rates = rates
        self.shares = shares

    def median(self, name):
        return statistics.median(self.rates[name])

    def ratio(self, name, peer):
        """Of each round; the median of these."""
        return statistics.median(ours / theirs for ours, theirs in zip(self.rates[name], self.rates[peer]))

    def share(self, name):
        return statistics.median(self.shares[name])


def compare(site, load, policies, rounds):
    """Every policy has its turn in every round, the other way round in every second one."""
    turns = []
    for number in range(rounds):
        turns += policies if number % 2 == 0 else policies[::-1]
    spans = [settle_of(policy) + MEASURE_S for policy in turns]
    running = site.begin(load, sum(spans) + 2.0)
    marks = []
    for policy in turns:
        site.split(policy)
        time.sleep(settle_of(policy))
        begin = time.time()
        time.sleep(MEASURE_S)
        marks.append((policy.name, begin, begin + MEASURE_S))
    ticks = running.end()
    rates, shares = {}, {}
    for name, begin, end in marks:
        rates.setdefault(name, []).append(ticks.bytes_per_second(begin, end))
        shares.setdefault(name, []).append(ticks.disk_share(begin, end))
    return Steady(rates, shares)


def settle_of(policy):
    return SETTLE_S if policy.percent is not None or policy.name in ("off", "cache-only", "backend-only") else FIND_S


__all__ = ["OURS", "Steady", "compare"]
