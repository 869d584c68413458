"""An export as a file (nbdfuse), as a block device (a loop device on that file), and mounted."""

import os
import subprocess

from .process import run
from .verdict import check, eventually, need, skip


class FuseDisk:
    """`path` is the file; `attach()` makes a block device of it. `server` is what nbdfuse takes: a URI, or a command
    in brackets that speaks NBD on its standard input and output."""

    def __init__(self, rig, *server, name="fuse"):
        need("nbdfuse", "fusermount3")
        if not os.path.exists("/dev/fuse"):
            skip("there is no /dev/fuse here")
        self.rig = rig
        self.server = server
        self.mountpoint = rig.path(name)
        self.path = self.mountpoint / "nbd"
        self.process = None
        self.device = None
        self.mounted = None

    def open(self):
        self.mountpoint.mkdir(exist_ok=True)
        self.process = self.rig.start("nbdfuse", self.mountpoint, *self.server, name="nbdfuse")
        eventually(self._there, "nbdfuse shows the export")

    def _there(self):
        check(self.process.alive(), f"nbdfuse ended: {self.process.tail()}")
        return os.path.ismount(self.mountpoint) and self.path.exists()

    def attach(self):
        """A loop device on the file, without a page cache in between."""
        if not os.path.exists("/dev/loop-control"):
            skip("there are no loop devices here")
        done = run("losetup", "--direct-io=on", "--find", "--show", self.path)
        self.device = done.stdout.strip()
        return self.device

    def mount(self, directory, *options):
        directory.mkdir(exist_ok=True)
        run("mount", *options, self.device, directory)
        self.mounted = directory

    def unmount(self):
        """In order: everything is written back; fails when it cannot."""
        run("umount", self.mounted)
        self.mounted = None

    def close(self):
        """Takes everything away, also what hangs on a dead server."""
        if self.mounted is not None:
            _try("umount", "-f", self.mounted) or _try("umount", "-l", self.mounted)
            self.mounted = None
        if self.device is not None:
            _try("losetup", "--detach", self.device)
            self.device = None
        # nbdfuse may have died (some versions assert when the server goes), and its mount answers nothing then.
        if f" {self.mountpoint} " in open("/proc/mounts", encoding="utf-8").read():
            _try("fusermount3", "-u", self.mountpoint) or _try("umount", "-l", self.mountpoint)
        if self.process is not None and self.process.alive():
            self.process.stop(5)


def _try(*argv):
    """Whether it worked; nobody minds."""
    argv = [str(word) for word in argv]
    try:
        return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=30).returncode == 0
    except subprocess.TimeoutExpired:
        return False
