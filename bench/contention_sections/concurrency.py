"""From one read in flight to 256, on a free link: what each policy makes of two paths (NetCAS, Fig. 4, 5 and 8)."""

from measure.chart import lines
from rig import Rig

from . import shares
from .policies import BACKEND_ONLY, CACHE_ONLY, OURS, STATIC_BEST, Policy, adaptive, fixed
from .site import Load, ready
from .steady import compare

SECTION = "concurrency"
POINTS = (Load(1, 1), Load(1, 4), Load(4, 4), Load(1, 16), Load(4, 16), Load(16, 16))
# From here on both paths are bound by their rate.
BOUND = 64
OFF = Policy("off")


def measure(setting, report):
    if setting.quick:
        return report.skipped(SECTION, "--quick")
    found = []
    with Rig() as rig:
        _, [site] = ready(rig, setting, setting.size_bytes)
        for load in POINTS:
            percent, _ = shares.search([site], load, 0.8, 1.6)
            policies = [OFF, CACHE_ONLY, BACKEND_ONLY, fixed(STATIC_BEST, percent), *adaptive(setting)]
            steady = compare(site, load, policies, setting.rounds)
            found.append((load, percent, policies, steady))
            rates = ", ".join(f"{policy.name} {steady.median(policy.name) / 1e6:.0f}" for policy in policies)
            setting.say(f"{SECTION} {load.name}: best share {percent} %; {rates} MB/s")
    tell(report, found)
    return judge(report, found)


def of_sum(steady, name):
    return steady.median(name) / (steady.median(CACHE_ONLY.name) + steady.median(BACKEND_ONLY.name))


def tell(report, found):
    rows = []
    for load, percent, policies, steady in found:
        for name in (policy.name for policy in policies):
            ratios = [steady.ratio(name, STATIC_BEST), steady.ratio(name, CACHE_ONLY.name), of_sum(steady, name)]
            report.cell(
                SECTION,
                policy=name,
                jobs=load.jobs,
                depth=load.depth,
                disk_share=round(steady.share(name), 4),
                best_share=percent / 100,
                bytes_per_second=round(steady.median(name)),
                of_best_static=round(ratios[0], 4),
                of_cache_only=round(ratios[1], 4),
                of_sum=round(ratios[2], 4),
            )
            texts = [f"{value:.3f}" for value in (steady.share(name), percent / 100, *ratios)]
            rows.append([load.name, name, f"{steady.median(name) / 1e6:.0f}", *texts])
    head = ["depth x jobs", "policy", "MB/s", "share", "best", "of best static", "of cache-only", "of the sum of both"]
    report.table("A free link, by concurrency", head, rows)
    names = [policy.name for policy in found[0][2]]
    series = [
        (name, [(number, steady.ratio(name, CACHE_ONLY.name)) for number, (_, _, _, steady) in enumerate(found)])
        for name in names if name != CACHE_ONLY.name
    ]
    points = ", ".join(load.name for load, *_ in found)
    report.plot(SECTION, lines("Throughput, of the cache disk's alone", points, "ratio", series))


def judge(report, found):
    if not any(policy.name == OURS for policy in found[0][2]):
        return
    bound = [steady for load, _, _, steady in found if load.jobs * load.depth >= BOUND]
    of_static = min(steady.ratio(OURS, STATIC_BEST) for *_, steady in found)
    of_cache = min(steady.ratio(OURS, CACHE_ONLY.name) for *_, steady in found)
    report.bar("concurrency_of_best_static_min", of_static, 0.97, True, STATIC_BEST)
    report.bar("concurrency_of_cache_only_min", of_cache, 1.0, True, CACHE_ONLY.name)
    report.bar("concurrency_of_sum_bound_min", min(of_sum(steady, OURS) for steady in bound), 0.95, True)
