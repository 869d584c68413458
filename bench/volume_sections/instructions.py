"""Instructions of a memory hit in `core`, counted by callgrind: the same number on every machine."""

import json

from measure import ROOT
from rig import run

SKIPPED = 77


def measure(setting, report):
    section = "instructions"
    quick = []
    if setting.quick:
        quick = ["--memory-hit"]
        report.skipped(section, "--quick: what splitting adds; no bar of this benchmark asks for it")
    done = run(ROOT / "scripts" / "instruction-gate", "--json", *quick, ok=None, seconds=1200)
    if done.returncode == SKIPPED:
        return report.skipped(section, done.stdout.strip().splitlines()[-1])
    found = json.loads(done.stdout.strip().splitlines()[-1])
    report.cell(section, **found)
    return report.bar("memory_hit_4k_instructions", found["instructions_per_hit"], 1000, False)
