"""Random ranges of 4 KiB of large objects: what the store sends for them."""

import http.client
import random

from rig import Rig, check, eventually

from . import servers

SECTION = "ranges"
PAGE_BYTES = 4096


def measure(setting, report):
    count = 200 if setting.quick else 4000
    with Rig() as rig:
        log = rig.path("origin.log")
        store = servers.origin(rig, log=log)
        served = servers.gateway(rig, store)
        choose = random.Random(setting.seed)
        pages = servers.LARGE_BYTES // PAGE_BYTES
        asked = choose.sample(range(servers.LARGE_COUNT * pages), count)
        connection = http.client.HTTPConnection("127.0.0.1", served.port)
        for at in asked:
            start = at % pages * PAGE_BYTES
            connection.request("GET", f"/large/{at // pages}", headers={"Range": f"bytes={start}-{start + PAGE_BYTES - 1}"})
            answer = connection.getresponse()
            check(answer.status == 206 and len(answer.read()) == PAGE_BYTES, f"{at}: {answer.status}")
        lines = lambda: log.read_text().splitlines()
        eventually(lambda: len(lines()) >= count, "the store's log is written")
        sent = sum(int(line.split()[1]) for line in lines())
    report.cell(SECTION, ranges=count, asked_bytes=count * PAGE_BYTES, sent_bytes=sent)
    report.bar("bytes that the store sends for random ranges of 4 KiB, of those asked for", sent / (count * PAGE_BYTES), 1.1, False)
