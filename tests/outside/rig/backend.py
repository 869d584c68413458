"""Remote storage: an nbdkit server that can be slow, can fail, and can be killed."""

import socket
from urllib.parse import quote

from .verdict import check, eventually, need


class Backend:
    """`nbdkit` on a unix socket.

    plugin: the plugin and its arguments ("memory", "64M"). filters: names, outermost first. arguments: parameters of
    filters ("rdelay=1ms"). threads: how many requests it works on at a time.
    """

    def __init__(self, rig, name, plugin, filters=(), arguments=(), threads=16):
        need("nbdkit")
        self.rig = rig
        self.name = name
        self.socket = rig.path(f"{name}.sock")
        self.argv = ["nbdkit", "--foreground", "--exit-with-parent", "--threads", str(threads), "--unix", self.socket]
        self.argv += [f"--filter={name}" for name in filters]
        self.argv += [*plugin, *arguments]
        self.process = None

    def uri(self, export=""):
        return f"nbd+unix:///{export}?socket={quote(str(self.socket))}"

    def start(self):
        self.socket.unlink(missing_ok=True)
        self.process = self.rig.start(*self.argv, name=self.name)
        eventually(self._answers, f"{' '.join(map(str, self.argv))} listens")

    def kill(self):
        """As a crash: what it held in memory is gone."""
        self.process.kill()

    def stop(self):
        """In order: what it held is written down."""
        self.process.stop()

    def _answers(self):
        check(self.process.alive(), f"nbdkit ended: {self.process.tail()}")
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.socket)) == 0
