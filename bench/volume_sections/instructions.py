"""Instructions of a memory hit in `core`, counted by callgrind: the same number on every machine."""

import json

from measure import ROOT
from rig import run

SKIPPED = 77


def measure(_setting, report):
    section = "instructions"
    done = run(ROOT / "scripts" / "instruction-gate", "--json", ok=None, seconds=1200)
    if done.returncode == SKIPPED:
        return report.skipped(section, done.stdout.strip().splitlines()[-1])
    found = json.loads(done.stdout.strip().splitlines()[-1])
    report.cell(section, **found)
    return report.bar("memory_hit_4k_instructions", found["instructions_per_hit"], 1000, False)
