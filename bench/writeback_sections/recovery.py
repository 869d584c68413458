"""A log full of small records is found again after a kill: from the process' start to its first answer, less what an empty log
takes, beside one sequential pass of fio over as many bytes of the cache disk."""

import statistics
import time

from measure import Job, fio
from rig import GIB, KIB, MIB, Rig

from . import servers

LOG_BYTES = GIB
LIVE_BYTES = 512 * MIB


def measure(setting, report):
    ratios, cells = [], []
    for number in range(1 if setting.quick else min(setting.rounds, 5)):
        with Rig() as rig:
            back = servers.delayed(rig)
            served = servers.forebay(rig, back, "back", LOG_BYTES, timeout="60s")
            empty_s = restart(served)
            with servers.Stopped(back):
                live = 32 * MIB if setting.quick else LIVE_BYTES
                fio(served.uri(), Job("randwrite", 16 * KIB, 32), size_bytes=live, seed=setting.seed + number, repeat=False, label="fill the log")
                used = servers.log_of(served)["used_bytes"]
                served.kill()
            full_s = restart(served)
            served.kill()
            begun = time.monotonic()
            fio(rig.path("forebay.cache"), Job("read", MIB, 1), size_bytes=used, offset_bytes=LOG_BYTES, label="one pass")
            pass_s = time.monotonic() - begun
            cells.append({"empty_s": empty_s, "full_s": full_s, "used_bytes": used, "pass_s": pass_s})
            ratios.append((full_s - empty_s) / pass_s)
        setting.say(f"recovery: round {number + 1}: {cells[-1]}")
    report.cell("recovery", each=cells)
    report.bar("recovery_vs_one_fio_pass", statistics.median(ratios), 1.2, False, "fio")


def restart(served):
    """Seconds until it answers."""
    served.kill()
    begun = time.monotonic()
    served.start()
    return time.monotonic() - begun
