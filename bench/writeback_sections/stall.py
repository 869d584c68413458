"""A back end that answers nothing for five seconds: write latencies meanwhile, beside the log with a back end that never answers
(which is the local disk alone)."""

import json
import statistics
import threading
import time

from rig import GIB, KIB, Rig, run

from . import servers

STALL_S = 5


def p999_us(uri, seconds, seed):
    """The 99.9th percentile of 4 KiB writes at depth 4, a thousand a second: what a log must absorb."""
    words = ["fio", "--name=job", "--rw=randwrite", f"--bs={4 * KIB}", "--iodepth=4", "--rate_iops=2000", "--thread"]
    words += ["--ioengine=nbd", f"--uri={uri}", f"--size={2 * GIB}", "--time_based", f"--runtime={seconds}", f"--randseed={seed}"]
    words += ["--norandommap", "--output-format=json", "--lat_percentiles=1", "--clat_percentiles=0", "--percentile_list=50:99:99.9"]
    text = run(*words, seconds=600).stdout
    write = json.loads(text[text.index("{"):])["jobs"][0]["write"]
    return write["lat_ns"]["percentile"]["99.900000"] / 1000


def measure(setting, report):
    seconds = 8 if setting.quick else 20
    stalled, alone = [], []
    for number in range(1 if setting.quick else min(setting.rounds, 3)):
        for kind, values in (("stalled", stalled), ("alone", alone)):
            with Rig() as rig:
                back = servers.delayed(rig)
                served = servers.forebay(rig, back, "back", 2 * GIB, timeout="60s")
                if kind == "alone":
                    with servers.Stopped(back):
                        values.append(p999_us(served.uri(), seconds, setting.seed + number))
                    continue
                ends = threading.Event()
                stalls = threading.Thread(target=stall, args=(back, ends), daemon=True)
                stalls.start()
                values.append(p999_us(served.uri(), seconds, setting.seed + number))
                ends.set()
                stalls.join()
        setting.say(f"stall: round {number + 1}")
    for name, values in (("stalled", stalled), ("alone", alone)):
        report.cell("stall", job="randwrite-4k-2000/s", server=name, p999_us=statistics.median(values), each=values)
    report.bar("stall_p999_vs_local_disk", statistics.median(stalled) / statistics.median(alone), 2, False, "the log alone")


def stall(back, ends):
    """Five seconds of silence, two of answers, again and again: worse than once a minute."""
    while not ends.wait(2):
        with servers.Stopped(back):
            ends.wait(STALL_S)
        time.sleep(0)
