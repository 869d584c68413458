"""Where contention happens: hosts of this machine, a link that strangers use too, and cache disks whose rate is set.

Why: contention for a link is made by other hosts' packets in the same queue; TCP flows of iperf3 fill it as they would a
switch's.

How: hosts and the switch are namespaces (`measure/hosts.py`). The store stands in a rack with a host that strangers load from, and the
rack's uplink is shaped, both ways: what is dropped is dropped in the network, not at the sender, where TCP would notice
without a round trip. A cache disk is `nbdkit memory` in a
namespace behind a shaped link of its own, shown as a file by nbdfuse: first come, first served at its rate, which is
what a saturated disk is, and smooth. Rejected for it: cgroup `blkio.throttle` (all or nothing for 100 ms at a time),
`nbdkit --filter=rate` (with 64 requests waiting, its threads wake each other 200,000 times a second), and the throttle
of qemu-storage-daemon (needs a processor for it).

Limits: a rate holds for each direction by itself, so writes do not slow reads of the paced disk down.
"""

import json
import os
from pathlib import Path

from measure import hosts
from measure.hosts import LINK_QUEUE, Host, Unavailable, enter, inside, listens_in, shape, switch
from rig import FuseDisk, check, eventually, run
from rig.server import listens
from rig.verdict import SKIPPED

STORE_PORT = 10809
STREAM_PORT = 5201
# More than the cache has in flight.
FUSE_READS_MAX = 4096
PROGRAMS = ("fio", "nbdkit", "nbdfuse", "fusermount3", "iperf3")
RACK = "rack"
UPLINK = "uplink"
# What waits for a disk waits.
DISK_QUEUE = ("limit", "64mb")


def probe():
    """All that will be needed. Raises Unavailable."""
    hosts.probe(*PROGRAMS)
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise Unavailable("/dev/fuse cannot be opened here")


class Ground:
    """The switch; a rack with the store and a host that strangers load from, whose uplink is the link; hosts for clients."""

    def __init__(self, rig, link_bytes_per_second):
        self.rig = rig
        self.stream_port = STREAM_PORT
        self.link_bytes_per_second = link_bytes_per_second
        self.disks = 0
        hosts.begin(rig)
        run("ip", "netns", "add", RACK)
        for where in (None, RACK):
            switch(where)
        run("ip", "link", "add", "name", UPLINK, "type", "veth", "peer", "name", UPLINK, "netns", RACK)
        for where in (None, RACK):
            run("ip", *hosts.where(where), "link", "set", "dev", UPLINK, "master", "switch", "up")
        self.store = Host("store", 1, RACK)
        self.busy = Host("busy", 2, RACK)
        self.strangers = Host("strangers", 3)

    def client(self, number):
        return Host(f"client{number}", 10 + number)

    def backend(self, number, size_bytes, latency):
        """An nbdkit in the store; its URI."""
        port = STORE_PORT + number
        words = ["nbdkit", "--foreground", "--exit-with-parent", "--threads", "64", "--port", str(port), "--filter=delay"]
        words += ["memory", str(size_bytes), f"rdelay={latency}", f"wdelay={latency}"]
        process = self.rig.start(*self.store.words(*words), name=f"store{number}")
        eventually(lambda: listens_in(process, self.store, port), "the store listens")
        return f"nbd://{self.store.address}:{port}/"

    def shape_link(self):
        for where in (None, RACK):
            shape(where, UPLINK, self.link_bytes_per_second, LINK_QUEUE)

    def strangers_bytes(self):
        """What the strangers have received."""
        rows = json.loads(run("ip", "-json", "-statistics", "link", "show", "dev", self.strangers.port).stdout)
        return rows[0]["stats64"]["tx"]["bytes"]

    def disk(self, size_bytes):
        """A new cache disk."""
        self.disks += 1
        return Disk(self.rig, self.disks, size_bytes)

    def strangers_come(self, flows, bytes_per_second=0):
        """iperf3 pulls so many flows out of the store, of that rate each (0: what they can get), until `stop()`."""
        return Strangers(self, flows, bytes_per_second)


def _lift_fuse_limit(path):
    """FUSE takes 12 reads at once, and lets whoever submits one more wait for its turn; no disk does that. Everything
    else that the thread has to do would wait with it: a read of the back end took 17 ms instead of 3."""
    control = Path("/sys/fs/fuse/connections")
    run("mount", "-t", "fusectl", "none", str(control))
    connection = control / str(os.minor(os.stat(path).st_dev))
    for limit in ("max_background", "congestion_threshold"):
        (connection / limit).write_text(str(FUSE_READS_MAX))
    run("umount", str(control))


class Disk:
    """A cache disk whose rate can be set: `path` is what Forebay is given."""

    def __init__(self, rig, number, size_bytes):
        self.name, self.port = f"disk{number}", f"to-disk{number}"
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", "name", self.port, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        run("ip", "addr", "add", f"10.67.{number}.1/24", "dev", self.port)
        run("ip", "link", "set", "dev", self.port, "up")
        run("ip", "-n", self.name, "addr", "add", f"10.67.{number}.2/24", "dev", "eth0")
        run("ip", "-n", self.name, "link", "set", "eth0", "up")
        words = ["nsenter", f"--net=/run/netns/{self.name}", "nbdkit", "--foreground", "--exit-with-parent"]
        process = rig.start(*words, "--threads", "32", "memory", str(size_bytes), name=self.name)
        eventually(process.alive, "nbdkit starts")
        fuse = FuseDisk(rig, f"nbd://10.67.{number}.2/", name=f"{self.name}.fuse")
        rig.at_end(fuse.close)
        eventually(lambda: listens(STORE_PORT, f"10.67.{number}.2"), "the paced disk answers")
        fuse.open()
        self.path = fuse.path
        _lift_fuse_limit(self.path)

    def shape(self, bytes_per_second):
        shape(self.name, "eth0", bytes_per_second, DISK_QUEUE)
        shape(None, self.port, bytes_per_second, DISK_QUEUE)


class Strangers:
    """iperf3 and its flows."""

    def __init__(self, ground, flows, bytes_per_second):
        ground.stream_port += 1
        port = str(ground.stream_port)
        serve = ["iperf3", "--server", "--one-off", "--port", port]
        self.server = ground.rig.start(*ground.busy.words(*serve), name="iperf3-server")
        eventually(lambda: listens_in(self.server, ground.busy, int(port)), "iperf3 listens", pause=0.01)
        pull = ["iperf3", "--client", ground.busy.address, "--port", port, "--reverse", "--parallel", str(flows)]
        pull += ["--time", "86400", "--interval", "0", "--bitrate", str(int(bytes_per_second * 8))]
        self.client = ground.rig.start(*ground.strangers.words(*pull), name="iperf3")

    def stop(self):
        """At once, as when a job elsewhere ends."""
        check(self.client.alive(), f"iperf3 ended: {self.client.tail()}")
        self.client.kill()
        self.server.kill()


__all__ = ["Disk", "Ground", "Host", "SKIPPED", "Strangers", "Unavailable", "enter", "inside", "probe"]
