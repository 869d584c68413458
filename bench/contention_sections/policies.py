"""The policies on trial, by the names that `forebay split` takes, and some that are made of them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """`name` in cells and plots; `percent` for a share of the cache disk that stays."""

    name: str
    percent: int | None = None

    def query(self):
        """For the admin endpoint."""
        return f"policy=static&disk_percent={self.percent}" if self.percent is not None else f"policy={self.name}"


CACHE_ONLY = Policy("cache-only")
BACKEND_ONLY = Policy("backend-only")
OURS = "expected-delay"
ADAPTIVE = ("orthus", "climb", OURS)
# Needs a profile of the volume.
PROFILED = "netcas"
ORTHUS_PAPER = "orthus-paper"
STATIC_CONTENDED = "static-contended"
STATIC_BEST = "static-best"
FORMULA = "formula"


def fixed(name, percent):
    return Policy(name, percent=int(round(percent)))


def adaptive(setting):
    """Those that find their way, which this build knows."""
    names = [name for name in ADAPTIVE if name in setting.known] + [PROFILED] * (PROFILED in setting.known)
    return [Policy(name) for name in names]
