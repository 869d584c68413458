"""How the benchmark is asked to run, and the world that it makes."""

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path

from rig import MIB, run
from rig.server import program

from .policies import ADAPTIVE, PROFILED

# A disk that can be saturated, and a back end that is worth asking: together 1.7 times the disk alone, as in NetCAS'
# figures with 16 threads. In bytes a second on the wire, of which 4 % are headers; their sum leaves two processors room.
DISK_BYTES_PER_SECOND = 160e6
LINK_BYTES_PER_SECOND = 120e6
BACKEND_LATENCY = "2ms"
VERSIONS = {
    "fio": ("fio", "--version"),
    "nbdkit": ("nbdkit", "--version"),
    "nbdfuse": ("nbdfuse", "--version"),
    "iperf3": ("iperf3", "--version"),
    "iproute2": ("tc", "-V"),
    "rustc": ("rustc", "--version"),
}


@dataclass
class Setting:
    """`seconds` is the length of Fig. 9a; all other lengths are in proportion to it."""

    quick: bool
    seed: int
    seconds: float
    rounds: int
    wanted: list
    known: set = field(default_factory=set)

    def say(self, text):
        """Progress, on standard error: standard output is for the result."""
        if not self.quick:
            print(text, file=sys.stderr, flush=True)

    def scaled(self, seconds):
        """Of the paper's seconds."""
        return seconds * self.seconds / 60

    @property
    def size_bytes(self):
        """Of a volume that is only read."""
        return (512 if self.quick else 1536) * MIB

    @property
    def memory(self):
        """Of the cache: as little as holds what is in flight, so that hits are on the disk."""
        return "64MiB" if self.quick else "160MiB"


def option_parser(description, sections):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    parser.add_argument("--quick", action="store_true", help="within a minute; says who wins, judges nothing")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write JSON, tables and pictures there")
    parser.add_argument("--seed", type=int, default=1, help="of random offsets")
    parser.add_argument("--only", action="append", choices=sections, metavar="SECTION", help=", ".join(sections))
    parser.add_argument("--seconds", type=float, help="length of Fig. 9a, others in proportion (default 60, quick 6)")
    parser.add_argument("--rounds", type=int, default=2, help="of comparisons on a free link")
    parser.add_argument("--policy", action="append", choices=[*ADAPTIVE, PROFILED], help="of the adaptive ones only these")
    return parser


def setting(options):
    return Setting(
        quick=options.quick,
        seed=options.seed,
        seconds=options.seconds or (6.0 if options.quick else 60.0),
        rounds=options.rounds,
        wanted=options.policy or [*ADAPTIVE, PROFILED],
    )


def know(chosen):
    """Which policies the program that will be measured has."""
    said = run(program(), "split", "--help").stdout.replace(",", " ").split()
    chosen.known = {name for name in chosen.wanted if name in said}
    if run(program(), "profile", "--help", ok=None).returncode != 0:
        chosen.known -= {PROFILED}


def world():
    """For the report."""
    return {
        "cache_filesystem": "nbdkit memory, shown by nbdfuse, behind tc tbf",
        "disk_bytes_per_second": DISK_BYTES_PER_SECOND,
        "link_bytes_per_second": LINK_BYTES_PER_SECOND,
        "backend_latency_s": float(BACKEND_LATENCY.removesuffix("ms")) / 1000,
        "read_bytes": 65536,
        "stranger_bytes_per_second": LINK_BYTES_PER_SECOND / 16,
    }
