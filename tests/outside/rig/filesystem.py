"""A file system on an export, through crashes of the server.

Each round: mount, check every file, write and sync files until the server is killed, start it again, replay the
journal (a mount does it), check the file system. What is promised: the file system is sound, for its own flushes were
honoured; and a file whose fsync had returned is whole. What was under way at the kill may or may not have happened.

With write-back the back end alone, as it is at the kill, is what is left when the cache disk is lost: a file system that
recovers as after a power cut.
"""

import hashlib
import os
import random
import threading
import time

from .process import run
from .server import Volume
from .stage import Rig
from .verdict import check, equal, need, seed

MIB = 1 << 20
ROUNDS = 4
NAMES = 48


class Writer(threading.Thread):
    """Creates, replaces and removes files in a directory, syncing each, until it meets an error.

    `states` maps a name to the contents it may have: digests, None for "absent". It is one content but for the name
    that was under way when the error came.
    """

    def __init__(self, directory, numbers, states):
        super().__init__(daemon=True)
        self.directory = directory
        self.numbers = numbers
        self.states = states
        self.done = 0
        self.error = None

    def run(self):
        try:
            while True:
                self.act(f"file{self.numbers.randrange(NAMES):03}")
                self.done += 1
        except OSError as error:
            self.error = error

    def act(self, name):
        before = self.states.get(name, {None})
        remove = before != {None} and self.numbers.random() < 0.2
        data = None if remove else self.numbers.randbytes(self.numbers.choice([100, 5000, 70_000, 1_500_000]))
        after = None if remove else hashlib.sha256(data).hexdigest()
        self.states[name] = before | {after}
        if remove:
            os.unlink(self.directory / name)
        else:
            with open(self.directory / f"{name}.new", "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.rename(self.directory / f"{name}.new", self.directory / name)
        self.sync()
        self.states[name] = {after}

    def sync(self):
        directory = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def verify(directory, states):
    """Every file has a content that it may have; from now on it is the only one."""
    for name, contents in states.items():
        path = directory / name
        found = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None
        check(found in contents, f"{name} is {found}; it may be {contents}")
        states[name] = {found}


def survives_kills(make, inspect, size_bytes, keys=None, orphan=None):
    """`make` formats a device and `inspect` examines it without changing it; both are commands that take its path. `keys`: of
    the volume. `orphan(rig, image)`: looks at a copy of the back end, taken at each kill."""
    need(make[0], inspect[0])
    numbers = random.Random(seed())
    states, done = {}, 0
    with Rig() as rig:
        image = rig.image("disk", size_bytes)
        back = rig.backend("file", image)
        volumes = {"v": Volume("v", back, keys or {})}
        forebay = rig.forebay(volumes, cache={"memory": "96MiB", "disk_size": "64MiB"})
        disk = rig.fuse_disk(forebay.uri())
        run(*make, disk.attach())
        for _ in range(ROUNDS):
            left = rig.path("left") if orphan else None
            done += crash(rig, forebay, disk, states, numbers, lambda: left and copy(image, left))
            if orphan:
                orphan(rig, left)
            disk = rig.fuse_disk(forebay.uri())
            disk.attach()
            disk.mount(rig.path("mnt"))
            verify(rig.path("mnt"), states)
            disk.unmount()
            run(*inspect, disk.device)
        disk.close()
        forebay.verb("flush", "v", "--to", "backend")
        check(done > ROUNDS, f"only {done} files were written: too few to mean anything")
        run("qemu-img", "compare", "-f", "raw", "-F", "raw", forebay.uri(), image)
        forebay.stop()
        run(*inspect, image)
        equal(len(list(rig.path("mnt").iterdir())), 0, "files in the empty mount point")
        print(f"{done} files were written and synced in {ROUNDS} rounds")


def copy(image, to):
    """As it is now, holes included."""
    run("cp", "--sparse=always", image, to)


def crash(rig, forebay, disk, states, numbers, at_kill):
    """Writes until the server is killed, and starts it again; returns how many files were done."""
    disk.mount(rig.path("mnt"))
    writer = Writer(rig.path("mnt"), numbers, states)
    writer.start()
    time.sleep(1 + 2 * numbers.random())
    check(writer.is_alive(), f"writing failed before the kill: {writer.error}")
    forebay.kill()
    writer.join(60)
    check(not writer.is_alive(), "a write hangs after the kill")
    at_kill()
    disk.close()
    forebay.start()
    return writer.done
