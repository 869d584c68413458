"""What every benchmark stands on: the real programs (from the outside tests' rig), fio, and a report with bars."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "outside"))

from .fio import Job, fio  # noqa: E402
from .rounds import Round, compare  # noqa: E402
from .report import Report  # noqa: E402
from .setting import Setting, build, describe, option_parser  # noqa: E402

__all__ = ["ROOT", "Job", "Report", "Round", "Setting", "build", "compare", "describe", "fio", "option_parser"]
