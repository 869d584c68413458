"""The servers that are compared: Forebay in several shapes, and its peers."""

import os
import time
from pathlib import Path

from measure import Job, fio
from rig import KIB, MIB, eventually, need, run
from rig.backend import Backend

FILL = Job("write", MIB, 4)
WARM = Job("read", MIB, 4)
PASSES_MAX = 20


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

    def warm(self, size_bytes):
        """Reads all until a pass misses nothing and the disk tier has been written."""
        for _ in range(PASSES_MAX):
            missed = self.forebay.counted(lambda: fio(self.target, WARM, size_bytes=size_bytes, label="warm"))["misses"]
            if self.forebay.stats()["disk"]:
                eventually(lambda: not self.forebay.stats()["queues"]["stores"], "pages are stored", 60)
            if not missed:
                return
        raise AssertionError(f"{missed} misses after {PASSES_MAX} passes over the volume: it does not fit")

    def wait_for_memory(self):
        """It commits its memory in the background when it starts; the peers of a run have theirs."""
        resident = [0, self.forebay.process.resident_bytes()]
        while resident[-1] > resident[-2]:
            time.sleep(0.5)
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


def over(backend, rig, name="forebay", **cache):
    """Forebay over a running back end, with a disk tier. Its file has been written once, as what stands for a disk: the
    first write to a place of a fresh file costs the file system a record in its journal."""
    cache = {"memory": "256MiB", "disk_size": "2GiB", "sparse": False, **cache}
    blank(rig.path(f"{name}.cache"), cache["disk_size"])
    served = Served(rig.forebay({"v": backend}, name=name, cache=cache, limits={"clients_max": 4}))
    served.wait_for_memory()
    return served


def blank(path, size):
    """A file of zeroes, all of them written."""
    mebibytes = int(size.removesuffix("GiB")) * 1024
    run("dd", "if=/dev/zero", f"of={path}", "bs=1M", f"count={mebibytes}", "oflag=direct", "status=none")


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
