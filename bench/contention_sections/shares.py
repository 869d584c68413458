"""The best share that stays, found by trying: of steps of ten, and then of finer ones around the best of these."""

import time

from .policies import fixed

# Once two in a row deliver less than this part of the best, the rest of the way down is not worth a look.
HOPELESS = 0.85


def best(try_percent):
    """(Percent, what it delivered); `try_percent` tells what a share of the cache disk delivers."""
    found, low = {}, 0
    for percent in range(100, -1, -10):
        found[percent] = try_percent(percent)
        low = low + 1 if found[percent] < HOPELESS * max(found.values()) else 0
        if low == 2:
            break
    middle = max(found, key=found.get)
    for percent in (middle - 6, middle - 3, middle + 3, middle + 6):
        if 0 <= percent <= 100:
            found[percent] = try_percent(percent)
    percent = max(found, key=found.get)
    return percent, found[percent]


def search(sites, load, settle_s, measure_s):
    """The best common share of sites under this load, which is begun and stopped here."""
    running = [site.begin(load, 3600) for site in sites]

    def delivers(percent):
        for site in sites:
            site.split(fixed("searched", percent))
        time.sleep(settle_s)
        return total_rate(running, measure_s)

    found = best(delivers)
    for one in running:
        one.stop()
    return found


def total_rate(running, seconds):
    """Bytes a second of all loads together."""
    before = [one.next_sample() for one in running]
    time.sleep(seconds)
    after = [one.next_sample() for one in running]
    return sum(one.between(*pair) for one, pair in zip(running, zip(before, after)))
