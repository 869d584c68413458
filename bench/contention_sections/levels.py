"""A link that strangers use a little, and a lot; each takes what it can get (NetCAS, Fig. 10)."""

import contextlib

from measure.chart import lines
from rig import Rig

from . import shares
from .policies import CACHE_ONLY, ORTHUS_PAPER, OURS, STATIC_BEST, adaptive, fixed
from .site import Load, ready
from .steady import compare

SECTION = "levels"
LOAD = Load(16, 16)
FLOWS = (0, 2, 5, 10, 20, 40)


def measure(setting, report):
    if setting.quick:
        return report.skipped(SECTION, "--quick")
    found = []
    with Rig() as rig:
        ground, [site] = ready(rig, setting, setting.size_bytes)
        free = None
        for flows in FLOWS:
            with strangers(ground, flows):
                percent, _ = shares.search([site], LOAD, 1.0, 1.6)
                free = percent if free is None else free
                policies = [CACHE_ONLY, fixed(ORTHUS_PAPER, free), fixed(STATIC_BEST, percent), *adaptive(setting)]
                steady = compare(site, LOAD, policies, setting.rounds)
            found.append((flows, percent, policies, steady))
            rates = ", ".join(f"{policy.name} {steady.median(policy.name) / 1e6:.0f}" for policy in policies)
            setting.say(f"{SECTION} {flows} flows: best share {percent} %; {rates} MB/s")
    tell(report, found)
    return judge(report, found)


@contextlib.contextmanager
def strangers(ground, flows):
    if not flows:
        yield
        return
    here = ground.strangers_come(flows)
    try:
        yield
    finally:
        here.stop()


def tell(report, found):
    rows = []
    for flows, percent, policies, steady in found:
        for name in (policy.name for policy in policies):
            ratios = [steady.ratio(name, STATIC_BEST), steady.ratio(name, CACHE_ONLY.name)]
            report.cell(
                SECTION,
                policy=name,
                flows=flows,
                disk_share=round(steady.share(name), 4),
                best_share=percent / 100,
                bytes_per_second=round(steady.median(name)),
                of_best_static=round(ratios[0], 4),
                of_cache_only=round(ratios[1], 4),
            )
            texts = [f"{value:.3f}" for value in (steady.share(name), percent / 100, *ratios)]
            rows.append([str(flows), name, f"{steady.median(name) / 1e6:.0f}", *texts])
    head = ["flows", "policy", "MB/s", "share", "best", "of best static", "of cache-only"]
    report.table(f"Fig. 10: {LOAD.name}, strangers without a limit", head, rows)
    names = [policy.name for policy in found[0][2]]
    series = [(name, [(flows, steady.median(name) / 1e6) for flows, _, _, steady in found]) for name in names]
    report.plot(SECTION, lines(f"Fig. 10: {LOAD.name}", "flows", "MB/s", series))


def judge(report, found):
    if not any(policy.name == OURS for policy in found[0][2]):
        return
    of_static = min(steady.ratio(OURS, STATIC_BEST) for *_, steady in found)
    of_cache = min(steady.ratio(OURS, CACHE_ONLY.name) for *_, steady in found)
    report.bar("levels_of_best_static_min", of_static, 0.97, True, STATIC_BEST)
    report.bar("levels_of_cache_only_min", of_cache, 1.0, True, CACHE_ONLY.name)
