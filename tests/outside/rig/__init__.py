"""What every outside test stands on: real programs, started, watched and cleaned away.

A test is an executable in `cases/`. It exits 0 when it passed, 77 when it was skipped (its last line of output says
why), and anything else when it failed. `with Rig() as rig:` gives it a directory and takes away whatever it started,
also when it fails or is interrupted.
"""

from .backend import Backend
from .disk import FuseDisk
from .nbd import NbdClient, NbdError
from .process import Process, run
from .server import Forebay, Volume, config_text
from .stage import Rig
from .verdict import check, equal, eventually, need, seed, skip

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

__all__ = [
    "GIB", "KIB", "MIB", "Backend", "Forebay", "FuseDisk", "NbdClient", "NbdError", "Process", "Rig", "Volume",
    "check", "config_text", "equal", "eventually", "need", "run", "seed", "skip",
]
