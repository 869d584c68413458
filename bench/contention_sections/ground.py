"""Hosts on one machine: a network namespace each, a bridge between them, and rates that can be changed while they work.

Why: contention for a link is made by other hosts' packets in the same queue. A paced pipe in one process has no queue
that strangers could fill; `tc tbf` on a virtual link has, and TCP flows of iperf3 fill it as they would a switch's.

How: the bench goes on in a network and a mount namespace of its own, which is the switch: nothing it sets up is seen
outside, and all of it is gone when it ends. The store stands in a rack with a host that strangers load from, and the
rack's uplink is shaped, both ways: what is dropped is dropped in the network, not at the sender, where TCP would notice
without a round trip. A cache disk is `nbdkit memory` in a
namespace behind a shaped link of its own, shown as a file by nbdfuse: first come, first served at its rate, which is
what a saturated disk is, and smooth. Rejected for it: cgroup `blkio.throttle` (all or nothing for 100 ms at a time),
`nbdkit --filter=rate` (with 64 requests waiting, its threads wake each other 200,000 times a second), and the throttle
of qemu-storage-daemon (needs a processor for it).

Limits: a rate holds for each direction by itself, so writes do not slow reads of the paced disk down.
"""

import contextlib
import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from rig import FuseDisk, check, eventually, run
from rig.verdict import SKIPPED

INSIDE = "FOREBAY_BENCH_INSIDE"
CLONE_NEWNET = 0x40000000
STORE_PORT = 10809
STREAM_PORT = 5201
# More than the cache has in flight.
FUSE_READS_MAX = 4096
PROGRAMS = ("fio", "nbdkit", "nbdfuse", "fusermount3", "iperf3", "ip", "tc", "unshare", "nsenter")
NETWORK = "10.66.0"
RACK = "rack"
UPLINK = "uplink"
# The least that lets whole segments of 64 KiB through, so that a rate is a rate at any moment.
BURST = "128kb"
# What waits for a link longer is dropped, as in a switch; what waits for a disk waits.
LINK_QUEUE = ("latency", "10ms")
DISK_QUEUE = ("limit", "64mb")


class Unavailable(Exception):
    """Why this machine does not let it be done."""


def inside():
    """Whether the program is in namespaces of its own already."""
    return bool(os.environ.get(INSIDE))


def _unshare():
    return ["unshare", "--net", "--mount", "--propagation=private", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]


def probe():
    """All that will be needed, tried in namespaces that are gone again at once. Raises Unavailable."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        raise Unavailable(f"not installed (`make deps` installs them): {', '.join(missing)}")
    attempt = " && ".join([
        "mount -t tmpfs none /run",
        "ip netns add host1",
        "ip link add name veth1 type veth peer name veth2",
        "ip link add name switch type bridge",
        "tc qdisc add dev veth1 root tbf rate 1mbit burst 10kb latency 1ms",
    ])
    try:
        done = subprocess.run([*_unshare(), "sh", "-c", attempt], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"network namespaces: {error}") from None
    if done.returncode != 0:
        why = " ".join(done.stderr.split()) or f"unshare ended with {done.returncode}"
        raise Unavailable(f"network namespaces with shaped links are not allowed here: {why}")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise Unavailable("/dev/fuse cannot be opened here")


def enter():
    """Begins the program anew in a network and a mount namespace of its own. Does not return."""
    sys.stdout.flush()
    os.environ[INSIDE] = "1"
    words = _unshare()
    os.execvp(words[0], [*words, sys.executable, *sys.argv])


class Host:
    """A network namespace with a leg on the switch, or on that of a rack."""

    def __init__(self, name, number, rack=None):
        self.name = name
        self.address = f"{NETWORK}.{number}"
        self.port = f"to-{name}"
        run("ip", "netns", "add", name)
        run("ip", *_where(rack), "link", "add", "name", self.port, "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", *_where(rack), "link", "set", "dev", self.port, "master", "switch", "up")
        run("ip", "-n", name, "addr", "add", f"{self.address}/24", "dev", "eth0")
        run("ip", "-n", name, "link", "set", "eth0", "up")
        run("ip", "-n", name, "link", "set", "lo", "up")

    def words(self, *argv):
        """The command, in this host."""
        return ["nsenter", f"--net=/run/netns/{self.name}", *argv]

    @contextlib.contextmanager
    def entered(self):
        """The calling thread's new sockets belong to this host."""
        with open("/proc/thread-self/ns/net", encoding="ascii") as home, open(f"/run/netns/{self.name}", encoding="ascii") as there:
            _set_namespace(there)
            try:
                yield
            finally:
                _set_namespace(home)


def _set_namespace(file):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(file.fileno(), CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


class Ground:
    """The switch; a rack with the store and a host that strangers load from, whose uplink is the link; hosts for clients."""

    def __init__(self, rig, link_bytes_per_second):
        self.rig = rig
        self.stream_port = STREAM_PORT
        self.link_bytes_per_second = link_bytes_per_second
        self.disks = 0
        # Names of namespaces lie there; it is this mount namespace's own.
        run("mount", "-t", "tmpfs", "none", "/run")
        rig.at_end(self._clear)
        run("ip", "link", "set", "lo", "up")
        run("ip", "netns", "add", RACK)
        for where in (None, RACK):
            run("ip", *_where(where), "link", "add", "name", "switch", "type", "bridge")
            run("ip", *_where(where), "link", "set", "dev", "switch", "up")
        run("ip", "link", "add", "name", UPLINK, "type", "veth", "peer", "name", UPLINK, "netns", RACK)
        for where in (None, RACK):
            run("ip", *_where(where), "link", "set", "dev", UPLINK, "master", "switch", "up")
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
        eventually(lambda: _listens(process, self.store, port), "the store listens")
        return f"nbd://{self.store.address}:{port}/"

    def shape_link(self):
        for where in (None, RACK):
            _shape(where, UPLINK, self.link_bytes_per_second, LINK_QUEUE)

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

    def _clear(self):
        # With a namespace go its links, but some time after: the next ground would find their names taken.
        ports = json.loads(run("ip", "-json", "link", "show", "type", "veth").stdout)
        for port in ports:
            run("ip", "link", "del", port["ifname"], ok=None)
        for name in os.listdir("/run/netns"):
            run("ip", "netns", "del", name, ok=None)
        run("ip", "link", "del", "switch", ok=None)
        run("umount", "/run", ok=None)


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
        eventually(lambda: _answers(f"10.67.{number}.2", STORE_PORT), "the paced disk answers")
        fuse.open()
        self.path = fuse.path
        _lift_fuse_limit(self.path)

    def shape(self, bytes_per_second):
        _shape(self.name, "eth0", bytes_per_second, DISK_QUEUE)
        _shape(None, self.port, bytes_per_second, DISK_QUEUE)


class Strangers:
    """iperf3 and its flows."""

    def __init__(self, ground, flows, bytes_per_second):
        ground.stream_port += 1
        port = str(ground.stream_port)
        serve = ["iperf3", "--server", "--one-off", "--port", port]
        self.server = ground.rig.start(*ground.busy.words(*serve), name="iperf3-server")
        eventually(lambda: _listens(self.server, ground.busy, int(port)), "iperf3 listens", pause=0.01)
        pull = ["iperf3", "--client", ground.busy.address, "--port", port, "--reverse", "--parallel", str(flows)]
        pull += ["--time", "86400", "--interval", "0", "--bitrate", str(int(bytes_per_second * 8))]
        self.client = ground.rig.start(*ground.strangers.words(*pull), name="iperf3")

    def stop(self):
        """At once, as when a job elsewhere ends."""
        check(self.client.alive(), f"iperf3 ended: {self.client.tail()}")
        self.client.kill()
        self.server.kill()


def _listens(process, host, port):
    check(process.alive(), f"{process.argv} ended: {process.tail()}")
    with host.entered():
        table = open("/proc/thread-self/net/tcp", encoding="ascii").read()
        table += open("/proc/thread-self/net/tcp6", encoding="ascii").read()
    return f":{port:04X} 0" in table


def _answers(address, port):
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) == 0


def _where(host):
    return ["-n", host] if host else []


def _shape(host, device, bytes_per_second, queue):
    words = ["dev", device, "root", "tbf", "rate", f"{int(bytes_per_second * 8)}bit", "burst", BURST, *queue]
    run("tc", *_where(host), "qdisc", "replace", *words)


__all__ = ["Disk", "Ground", "Host", "SKIPPED", "Strangers", "Unavailable", "enter", "inside", "probe"]
