"""The servers that are compared: Forebay in several shapes, and its peers."""

import itertools
import os
import tempfile
import time
from pathlib import Path

from measure import Job, fio
from rig import KIB, MIB, eventually, need, run
from rig.backend import Backend

FILL = Job("write", MIB, 4)
WARM = Job("read", MIB, 4)
PASSES_MAX = 20
# Superblocks, intent maps and the table of a disk of up to 2 GiB (docs/design/disk-format.md).
HEAD_MIB = 8
NUMBERS = itertools.count()


def nbdkit_memory(size_bytes):
    """`nbdkit memory`, filled: its pages exist."""
    def start(rig):
        backend = rig.backend("memory", str(size_bytes), name="nbdkit-memory")
        fio(backend.uri(), FILL, size_bytes=size_bytes, label="fill")
        return backend.uri()

    return start


def qemu_nbd(size_bytes):
    """`qemu-nbd` on a file in memory, filled."""
    def start(rig):
        need("qemu-nbd")
        image = Path("/dev/shm") / f"forebay-bench-{os.getpid()}"
        with open(image, "wb") as file:
            file.truncate(size_bytes)
        rig.at_end(lambda: image.unlink(missing_ok=True))
        socket = rig.path("qemu-nbd.sock")
        rig.start("qemu-nbd", "-k", socket, "-f", "raw", "-t", "--shared=16", image, name="qemu-nbd")
        eventually(socket.exists, "qemu-nbd listens")
        uri = f"nbd+unix:///?socket={socket}"
        fio(uri, FILL, size_bytes=size_bytes, label="fill")
        return uri

    return start


class Served:
    """A running Forebay as a target of fio."""

    def __init__(self, forebay):
        self.forebay = forebay
        self.volume = forebay.volumes[0].name
        self.target = forebay.uri()

    def counters(self):
        return self.forebay.stats(self.volume)

    def counters_at_rest(self):
        """What was counted, if nothing has been read or written since the last look."""
        return self.forebay.stats(self.volume, pause_s=0)

    def warm(self, size_bytes):
        """Reads all until a tier holds every page of it."""
        for _ in range(PASSES_MAX):
            fio(self.target, WARM, size_bytes=size_bytes, label="warm")
            stats = eventually(self._stored, "pages are stored", 60)
            held = max(tier["pages"] for tier in [stats["memory"], *([stats["disk"]["tier"]] if stats["disk"] else [])])
            if held * stats["page_bytes"] >= size_bytes:
                return
        raise AssertionError(f"{held} pages of {size_bytes} bytes are kept after {PASSES_MAX} passes: it does not fit")

    def _stored(self):
        """What is counted, once nothing is on its way to the disk tier."""
        stats = self.forebay.stats()
        return None if stats["queues"]["stores"] else stats

    def wait_for_memory(self):
        """It commits its memory in the background when it starts; the peers of a run have theirs."""
        resident = [0, self.forebay.process.resident_bytes()]
        while resident[-1] > resident[-2]:
            time.sleep(0.25)
            resident.append(self.forebay.process.resident_bytes())

    def evict(self):
        self.forebay.verb("evict", self.volume)


def memory_only(size_bytes, clients_max=16):
    """Forebay with all of the volume in its memory tier."""
    def start(rig):
        backend = rig.backend("memory", str(size_bytes))
        fio(backend.uri(), FILL, size_bytes=size_bytes, label="fill")
        cache = {"disk": None, "disk_size": None, "sparse": None, "memory": f"{size_bytes * 3 // 2 // MIB + 128}MiB"}
        served = Served(rig.forebay({"v": backend}, cache=cache, limits={"clients_max": clients_max}))
        served.warm(size_bytes)
        return served

    return start


def over(backend, rig, setting, name="forebay", **cache):
    """Forebay over a running back end, with a disk tier: the smaller, the sooner it is there."""
    memory, disk = ("128MiB", "512MiB") if setting.quick else ("256MiB", "2GiB")
    cache = {"memory": memory, "disk_size": disk, "sparse": False, **cache}
    blank(rig, rig.path(f"{name}.cache"), cache["disk_size"])
    served = Served(rig.forebay({"v": backend}, name=name, cache=cache, limits={"clients_max": 4}))
    served.wait_for_memory()
    return served


# Where files that stand for disks wait for their next use: (directory, paths by size).
STORE = None, {}


def blank(rig, path, size):
    """A file that stands for a disk: every block has been written once, for the first write to a place of a fresh file
    costs the file system a record in its journal. Nothing is on it. It goes back into the store with the rig."""
    global STORE
    if STORE[0] is None:
        STORE = tempfile.TemporaryDirectory(prefix="forebay-bench-"), {}
    directory, waiting = STORE[0], STORE[1].setdefault(size, [])
    mebibytes = int(size[:-3]) * {"GiB": 1024, "MiB": 1}[size[-3:]]
    if waiting:
        waiting.pop().rename(path)
        mebibytes = HEAD_MIB
    run("dd", "if=/dev/zero", f"of={path}", "bs=1M", f"count={mebibytes}", "oflag=direct", "conv=notrunc", "status=none")
    kept = Path(directory.name) / f"{size}-{next(NUMBERS)}"
    rig.at_end(lambda: waiting.append(path.rename(kept)))


def start_backend(rig, kind, size_bytes, name="backend"):
    """A back end behind a delay of 1 ms, behind 200 MB/s, or neither."""
    filters, arguments = {
        "delay": (["delay"], ["rdelay=1ms", "wdelay=1ms"]),
        # In bits a second, and its M is binary: 200 MB/s.
        "rate": (["rate"], ["rate=1525M", "burstiness=0.1"]),
        "unpaced": ([], []),
    }[kind]
    backend = Backend(rig, name, ["memory", str(size_bytes)], filters=filters, arguments=arguments, threads=64)
    backend.start()
    return backend
