"""A cache of 16 million pages, all of them on its disk: how soon it answers, and how soon it knows them all.

`crates/engine/examples/synthetic_table.rs` fills the slot table of a formatted cache disk, so that the terabyte behind
it need not be written: the file is sparse, and the back end is zeroes.
"""

import time

from measure.setting import example
from rig import KIB, MIB, GIB, Rig, NbdClient, check, equal, run

PAGES = 16 << 20
PAGE = 64 * KIB
SOUND_PAGES = 4096  # whose checksums the program makes right


def measure(setting, report):
    section = "metadata"
    if setting.quick:
        return report.skipped(section, "--quick: filling 16 million records takes a minute")
    program = example("engine", "synthetic_table")
    if program is None:
        return report.skipped(section, "crates/engine/examples/synthetic_table.rs is not there")
    found = []
    with Rig() as rig:
        backend = rig.backend("memory", str(PAGES * PAGE))
        cache = {"memory": "3GiB", "disk_size": f"{(PAGES * PAGE + 2 * GIB) // MIB}MiB", "sparse": True}
        forebay = rig.forebay({"v": backend}, cache=cache)
        forebay.stop()
        run(program, rig.path("forebay.cache"), seconds=600)
        for _ in range(setting.rounds):
            found.append(once(forebay))
            setting.say(f"{section}: {found[-1]}")
            forebay.stop(60)
    found.sort(key=lambda row: row["index_complete_s"])
    middle = found[len(found) // 2]
    report.cell(section, pages=PAGES, rounds=len(found), **middle)
    report.bar("metadata_16m_pages_first_reply_s", middle["first_reply_s"], 1.0, False)
    return report.bar("metadata_16m_pages_index_complete_s", middle["index_complete_s"], 5.0, False)


def once(forebay):
    """One start: seconds from exec, and what the reads meanwhile met."""
    begun = time.monotonic()
    forebay.spawn()
    client = connect(forebay, begun)
    equal(client.read(0, 4 * KIB), bytes(4 * KIB), "the first reply")
    first_s = time.monotonic() - begun
    reads = 1
    while True:
        page = reads * 97 % SOUND_PAGES
        equal(client.read(page * PAGE, 4 * KIB), bytes(4 * KIB), f"page {page}")
        reads += 1
        if reads % 50 == 0 and not recovering(forebay):
            break
        check(time.monotonic() - begun < 300, "the index is not complete after 5 minutes")
    complete_s = time.monotonic() - begun
    stats = forebay.stats()
    volume = stats["volumes"][0]
    client.disconnect()
    return {
        "first_reply_s": round(first_s, 3),
        "index_complete_s": round(complete_s, 3),
        "reads_meanwhile": reads,
        "hits_meanwhile": volume["memory_hits"] + volume["disk_hits"],
        "recovering_misses": volume["recovering_misses"],
        "pages_known": stats["disk"]["tier"]["pages"],
        "resident_bytes": forebay.process.resident_bytes(),
    }


def recovering(forebay):
    try:
        return forebay.stats(pause_s=0)["recovery"]["running"]
    except OSError:
        return True


def connect(forebay, begun):
    """The first connection that is taken."""
    while True:
        try:
            return NbdClient(forebay.socket, forebay.volumes[0].name)
        except OSError:
            check(forebay.process.alive(), forebay.process.tail())
            check(time.monotonic() - begun < 60, "nobody listens after a minute")
            time.sleep(0.002)
