"""How a benchmark is asked to run, what it builds, and what the machine is."""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rig import run

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Setting:
    """`seconds` of a run, `rounds` of a comparison."""

    quick: bool
    seed: int
    seconds: float
    rounds: int
    minutes: float
    quiet: bool

    def say(self, text):
        """Progress, on standard error: standard output is for the result."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)


def option_parser(description, sections):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    parser.add_argument("--quick", action="store_true", help="within a minute; says who wins, judges nothing")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write JSON, table and picture there")
    parser.add_argument("--seed", type=int, default=1, help="of random offsets")
    parser.add_argument("--only", action="append", choices=sections, metavar="SECTION", help=", ".join(sections))
    parser.add_argument("--rounds", type=int, help="of each comparison (default 5, quick 1)")
    parser.add_argument("--seconds", type=float, help="of each run (default 3, quick .2)")
    parser.add_argument("--minutes", type=float, help="of the load under which nothing may grow (default 5, quick .05)")
    return parser


def setting(options):
    def pick(given, full, quick):
        return given if given is not None else quick if options.quick else full

    return Setting(
        quick=options.quick,
        seed=options.seed,
        seconds=pick(options.seconds, 3.0, 0.2),
        rounds=pick(options.rounds, 5, 1),
        minutes=pick(options.minutes, 5.0, 0.05),
        quiet=False,
    )


def target():
    return Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "release"


def build():
    """The release binary, which the rig will start from now on."""
    cargo("build", "--release", "--locked", "-p", "forebay-cli")
    os.environ["FOREBAY"] = str(target() / "forebay")


def example(package, name):
    """An example program of a crate, or None when the crate has none of that name."""
    if not (ROOT / "crates" / package / "examples" / f"{name}.rs").exists():
        return None
    cargo("build", "--release", "--locked", "-p", f"forebay-{package}", "--example", name)
    return target() / "examples" / name


def cargo(*words):
    done = subprocess.run(["cargo", *words], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
    if done.returncode != 0:
        sys.exit(f"cargo {' '.join(words)} failed")


def describe(commands, versions=None):
    """The machine, the programs (`versions`: how each tells) and the commands, for the report."""
    cpu = [line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8") if line.startswith("model name")]
    memory = next(int(line.split()[1]) for line in open("/proc/meminfo", encoding="utf-8") if line.startswith("MemTotal"))
    return {
        "processor": cpu[0] if cpu else platform.machine(),
        "processors": len(os.sched_getaffinity(0)),
        "memory_bytes": memory << 10,
        "kernel": platform.release(),
        "cache_filesystem": run("stat", "-f", "-c", "%T", tempfile.gettempdir()).stdout.strip(),
        "commit": run("git", "describe", "--always", "--dirty", cwd=ROOT, ok=None).stdout.strip(),
        "versions": {name: version(*words) for name, words in (versions or VERSIONS).items()},
        "commands": dict(commands),
    }


VERSIONS = {
    "fio": ("fio", "--version"),
    "nbdkit": ("nbdkit", "--version"),
    "qemu-nbd": ("qemu-nbd", "--version"),
    "rustc": ("rustc", "--version"),
}


def version(*words):
    try:
        return (run(*words, ok=None).stdout.strip().splitlines() or ["?"])[0]
    except OSError:
        return f"{words[0]}: not installed"
