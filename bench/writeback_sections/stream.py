"""Sequential 128 KiB writes: a burst of half the log with large bypass, beside local disk and back end together; and sustained,
beside the back end alone. Local disk and back end have a rate."""

import statistics

from measure import Job, fio
from rig import KIB, MIB, Rig, Volume

from . import servers

LOG_BYTES = 512 * MIB
LOCAL_BYTES_PER_S = 150_000_000
BACK_END_BYTES_PER_S = 90_000_000
JOB = Job("write", 128 * KIB, 16)


def measure(setting, report):
    bursts, sustained, local, alone = [], [], [], []
    for number in range(1 if setting.quick else setting.rounds):
        with Rig() as rig:
            back = rate_limited(rig)
            alone.append(fio(back.uri(), JOB, size_bytes=256 * MIB, label="stream on the back end")["bytes_per_s"])
            served = served_by(rig, back, "back")
            burst = fio(served.uri(), JOB, size_bytes=LOG_BYTES // 2, label="stream burst")
            bursts.append(burst["bytes_per_s"])
            seconds = 3 if setting.quick else max(30, 3 * setting.seconds)
            # From the middle on: the burst that the log takes first is not sustained.
            fio(served.uri(), JOB, seconds=seconds / 2, size_bytes=4 * LOG_BYTES, label="stream, at first")
            long = fio(served.uri(), JOB, seconds=seconds, size_bytes=4 * LOG_BYTES, label="stream sustained")
            sustained.append(long["bytes_per_s"])
        with Rig() as rig:
            back = rate_limited(rig)
            served = served_by(rig, back, "never")
            with servers.Stopped(back):
                only = fio(served.uri(), JOB, size_bytes=LOG_BYTES // 2, label="stream on the log alone")
            local.append(only["bytes_per_s"])
        setting.say(f"stream: round {number + 1}")
    for name, values in (("burst", bursts), ("sustained", sustained), ("local", local), ("back end", alone)):
        report.cell("stream", job=JOB.name, server=name, bytes_per_s=statistics.median(values), each=values)
    both = [burst / (here + there) for burst, here, there in zip(bursts, local, alone)]
    report.bar("burst_128k_bypass_vs_local_plus_back_end", statistics.median(both), 0.9, True, "both together")
    steady = [one / there for one, there in zip(sustained, alone)]
    report.bar("sustained_128k_bypass_vs_back_end", statistics.median(steady), 0.95, True, "the back end alone")


def rate_limited(rig):
    return servers.back_end(rig, ("rate", [f"rate={BACK_END_BYTES_PER_S * 8}", "burstiness=0.1"]))


def served_by(rig, back, bypass):
    volume = Volume("v", back, {
        "mode": "back",
        "log": f"{LOG_BYTES // MIB}MiB",
        "bypass": "large" if bypass == "back" else "never",
        "timeout": "60s",
    })
    cache = {
        "memory": "512MiB",
        "disk_size": f"{LOG_BYTES // MIB + 512}MiB",
        "sparse": False,
        "paced": {"rate": f"{LOCAL_BYTES_PER_S // 1_000_000}MB/s"},
    }
    servers.blank(rig, rig.path("forebay.cache"), cache["disk_size"])
    return rig.forebay({"v": volume}, cache=cache, admission={"sequential_cutoff": "1MiB"})
