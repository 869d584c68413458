"""What the back end limits: cold misses with fill, and write-through, beside the back end itself; behind a delay, behind
a rate, and unpaced (there beside an NBD proxy)."""

from dataclasses import replace

from measure import Job, compare, fio
from measure.rounds import ratio
from rig import KIB, MIB, GIB

from . import servers

SIZES = (4 * KIB, 64 * KIB)
READS = [Job("randread", size, 16) for size in SIZES]
WRITES = [Job("randwrite", size, 16) for size in SIZES]
# Sparse: what is never written costs the back end no memory, and there is always something cold.
COLD_BYTES = 32 * GIB
REGIONS = 1000


def measure_delay(setting, report):
    beside_direct(setting, report, "delay")


def measure_rate(setting, report):
    beside_direct(setting, report, "rate")


def size_of(job):
    return f"{job.block_bytes // KIB}k"


def beside_direct(setting, report, kind):
    section = f"backend-{kind}"
    share = {}

    def direct(rig):
        share["backend"] = servers.start_backend(rig, kind, COLD_BYTES)
        return share["backend"].uri()

    def forebay(rig):
        return servers.over(share["backend"], rig, setting)

    reads = compare(
        setting, f"{section}-cold", setting.rounds, {"direct": direct, "forebay": forebay}, READS, COLD_BYTES, cold, False
    )
    report.cells_of(f"{section}-cold", reads)
    for job in READS:
        value = ratio(reads, job.name, "forebay", "direct", "iops")
        report.bar(f"cold_miss_{size_of(job)}_{kind}_iops_vs_direct", value, 0.95, True, "direct")
    amplification(report, reads, kind)

    size_bytes = (64 if setting.quick else 512) * MIB
    writes = compare(
        setting,
        f"{section}-write",
        setting.rounds,
        {"direct": filled(direct, size_bytes), "forebay": warmed(forebay, size_bytes)},
        WRITES,
        size_bytes,
    )
    report.cells_of(f"{section}-write", writes)
    for job in WRITES:
        value = ratio(writes, job.name, "forebay", "direct", "iops")
        report.bar(f"write_through_{size_of(job)}_{kind}_iops_vs_direct", value, 0.95, True, "direct")


def amplification(report, rounds, kind):
    job = READS[0].name
    asked = sum(this.get(job, "forebay", "asked_bytes") for this in rounds)
    read = sum(this.get(job, "forebay", "backend_read_bytes") for this in rounds)
    report.bar(f"cold_miss_4k_{kind}_bytes_read_per_byte_asked", read / asked, 1.1, False)


def cold(name, target, _job):
    """Everything is evicted first; afterwards, what was read of the back end."""
    if name != "forebay":
        return lambda: {"asked_bytes": 0, "backend_read_bytes": 0, "hit_share": 0}
    target.evict()
    at_start = target.counters_at_rest()

    def after():
        now = target.counters()
        gained = {key: now[key] - at_start[key] for key in now if isinstance(now[key], int)}
        parts = gained["memory_hits"] + gained["disk_hits"] + gained["misses"]
        return {
            "asked_bytes": gained["read_bytes"],
            "backend_read_bytes": gained["backend_read_bytes"],
            "hit_share": 1 - gained["misses"] / max(1, parts),
        }

    return after


def filled(start, size_bytes):
    """What will be written exists already, so that no run pays for its first pages."""
    def begin(rig):
        uri = start(rig)
        fio(uri, servers.FILL, size_bytes=size_bytes, label="fill")
        return uri

    return begin


def warmed(start, size_bytes):
    """What will be written is in the cache: each write has to keep it right."""
    def begin(rig):
        served = start(rig)
        served.warm(size_bytes)
        return served

    return begin


def measure_unpaced(setting, report):
    section = "backend-unpaced"
    share = {}

    def proxy(rig):
        share["backend"] = servers.start_backend(rig, "unpaced", COLD_BYTES)
        relay = rig.backend("nbd", f"uri={share['backend'].uri()}", "shared=true", name="nbdkit-nbd")
        return relay.uri()

    def forebay(rig):
        return servers.over(share["backend"], rig, setting)

    reads = compare(
        setting, f"{section}-cold", setting.rounds, {"nbdkit-nbd": proxy, "forebay": forebay}, READS, COLD_BYTES, cold, False
    )
    report.cells_of(f"{section}-cold", reads)
    size_bytes = (64 if setting.quick else 512) * MIB
    writes = compare(
        setting,
        f"{section}-write",
        setting.rounds,
        {"nbdkit-nbd": filled(proxy, size_bytes), "forebay": warmed(forebay, size_bytes)},
        WRITES,
        size_bytes,
    )
    report.cells_of(f"{section}-write", writes)
    for what, rounds, jobs in (("cold_miss", reads, READS), ("write_through", writes, WRITES)):
        for job in jobs:
            value = ratio(rounds, job.name, "forebay", "nbdkit-nbd", "iops")
            report.bar(f"{what}_{size_of(job)}_unpaced_iops_vs_nbdkit-nbd", value, 1.2, True, "nbdkit-nbd")


def measure_intent_map(setting, report):
    """Random writes over 1,000 regions, with the map and without. Between its turns a server's regions are cleared, so
    each run marks all of them anew."""
    section = "intent-map"
    size_bytes = REGIONS * MIB

    backends = []

    def server(name, intent_map):
        def start(rig):
            # One for both, which take turns: nothing that is read of it counts here.
            if not intent_map:
                return servers.over(backends[-1], rig, setting, name=name, intent_map=False)
            backends.append(servers.start_backend(rig, "unpaced", size_bytes))
            fio(backends[-1].uri(), servers.FILL, size_bytes=size_bytes, label="fill")
            return servers.over(backends[-1], rig, setting, name=name, intent_map=True)

        return start

    def before(_name, target, _job):
        target.forebay.settle()

    job = Job("randwrite", 4 * KIB, 16)
    # Marking all regions takes some tenths of a second: a run must be longer than that to say anything.
    setting = replace(setting, seconds=max(1.0, setting.seconds))
    rounds = compare(
        setting, section, setting.rounds, {"on": server("on", True), "off": server("off", False)}, [job], size_bytes, before
    )
    report.cells_of(section, rounds)
    value = ratio(rounds, job.name, "on", "off", "iops")
    report.bar("write_through_4k_1000_regions_intent_map_on_vs_off", value, 0.95, True, "intent map off")
