"""Volumes in write-back and what they are compared with."""

import os
import signal
import time

from rig import GIB, MIB, Volume, eventually
from volume_sections.servers import blank

VOLUME_BYTES = 8 * GIB
SLOTS_MIB = 512


def back_end(rig, *filters, threads=64, name="backend"):
    """A sparse volume in memory; `filters` are (name, arguments)."""
    names = [filter_name for filter_name, _ in filters]
    arguments = [word for _, words in filters for word in words]
    return rig.backend("memory", str(VOLUME_BYTES), filters=names, arguments=arguments, threads=threads, name=name)


def delayed(rig):
    """Behind a round trip of a millisecond."""
    return back_end(rig, ("delay", ["rdelay=1ms", "wdelay=1ms"]))


def forebay(rig, backend, mode="back", log_bytes=GIB, name="forebay", **keys):
    """A volume over that back end, on a cache disk with room for a log and a little more."""
    if mode == "back":
        keys["log"] = f"{log_bytes // MIB}MiB"
    volume = Volume("v", backend, {"mode": mode, **keys})
    cache = {"memory": "512MiB", "disk_size": f"{log_bytes // MIB + SLOTS_MIB}MiB", "sparse": False}
    blank(rig, rig.path(f"{name}.cache"), cache["disk_size"])
    return rig.forebay({"v": volume}, cache=cache, name=name)


def log_of(served):
    return served.stats("v", pause_s=0)["log"]


def followed(served, seconds=120):
    """Waits until the back end has everything."""
    eventually(lambda: log_of(served)["dirty_bytes"] == 0, "the back end has everything", seconds, pause=0.1)


class Stopped:
    """A back end that answers nothing meanwhile."""

    def __init__(self, backend):
        self.pid = backend.process.child.pid

    def __enter__(self):
        os.kill(self.pid, signal.SIGSTOP)
        time.sleep(0.05)
        return self

    def __exit__(self, *_):
        os.kill(self.pid, signal.SIGCONT)
