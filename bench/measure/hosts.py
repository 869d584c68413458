"""Hosts on one machine: a network namespace each, and links between them whose rate is set.

Why: a paced pipe in one process has no queue that others could fill; `tc tbf` on a virtual link has, as a switch has.

How: the bench goes on in a network and a mount namespace of its own, which is the switch: nothing it sets up is seen
outside, and all of it is gone when it ends.
"""

import contextlib
import ctypes
import json
import os
import shutil
import subprocess
import sys

from rig import check, run

INSIDE = "FOREBAY_BENCH_INSIDE"
CLONE_NEWNET = 0x40000000
PROGRAMS = ("ip", "tc", "unshare", "nsenter")
NETWORK = "10.66.0"
# The least that lets whole segments of 64 KiB through, so that a rate is a rate at any moment.
BURST = "128kb"
# What waits for a link longer is dropped, as in a switch.
LINK_QUEUE = ("latency", "10ms")


class Unavailable(Exception):
    """Why this machine does not let it be done."""


def inside():
    """Whether the program is in namespaces of its own already."""
    return bool(os.environ.get(INSIDE))


def _unshare():
    return ["unshare", "--net", "--mount", "--propagation=private", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]


def probe(*programs):
    """All that will be needed, tried in namespaces that are gone again at once. Raises Unavailable."""
    missing = [program for program in (*programs, *PROGRAMS) if shutil.which(program) is None]
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


def enter():
    """Begins the program anew in a network and a mount namespace of its own. Does not return."""
    sys.stdout.flush()
    os.environ[INSIDE] = "1"
    words = _unshare()
    os.execvp(words[0], [*words, sys.executable, *sys.argv])


def begin(rig):
    """The switch's loopback, and a place for the hosts' names; all is cleared when the rig ends."""
    # Names of namespaces lie there; it is this mount namespace's own.
    run("mount", "-t", "tmpfs", "none", "/run")
    rig.at_end(_clear)
    run("ip", "link", "set", "lo", "up")


def _clear():
    # With a namespace go its links, but some time after: the next ones would find their names taken.
    ports = json.loads(run("ip", "-json", "link", "show", "type", "veth").stdout)
    for port in ports:
        run("ip", "link", "del", port["ifname"], ok=None)
    for name in os.listdir("/run/netns"):
        run("ip", "netns", "del", name, ok=None)
    run("ip", "link", "del", "switch", ok=None)
    run("umount", "/run", ok=None)


def switch(host=None):
    """A bridge in a host, or where the bench is."""
    run("ip", *where(host), "link", "add", "name", "switch", "type", "bridge")
    run("ip", *where(host), "link", "set", "dev", "switch", "up")


class Here:
    """The host that the bench is on."""

    address = "127.0.0.1"

    def words(self, *argv):
        return list(argv)


class Host:
    """A network namespace with a leg on the switch, or on that of a rack."""

    def __init__(self, name, number, rack=None):
        self.name = name
        self.address = f"{NETWORK}.{number}"
        self.port = f"to-{name}"
        run("ip", "netns", "add", name)
        run("ip", *where(rack), "link", "add", "name", self.port, "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", *where(rack), "link", "set", "dev", self.port, "master", "switch", "up")
        run("ip", "-n", name, "addr", "add", f"{self.address}/24", "dev", "eth0")
        run("ip", "-n", name, "link", "set", "eth0", "up")
        run("ip", "-n", name, "link", "set", "lo", "up")

    def words(self, *argv):
        """The command, in this host."""
        return ["nsenter", f"--net=/run/netns/{self.name}", *argv]

    def shape(self, bytes_per_second):
        """Its leg, both ways."""
        shape(self.name, "eth0", bytes_per_second, LINK_QUEUE)
        shape(None, self.port, bytes_per_second, LINK_QUEUE)

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


def where(host):
    """`ip` or `tc` in a host, or where the bench is."""
    return ["-n", host] if host else []


def shape(host, device, bytes_per_second, queue):
    words = ["dev", device, "root", "tbf", "rate", f"{int(bytes_per_second * 8)}bit", "burst", BURST, *queue]
    run("tc", *where(host), "qdisc", "replace", *words)


def listens_in(process, host, port):
    check(process.alive(), f"{process.argv} ended: {process.tail()}")
    with host.entered():
        table = open("/proc/thread-self/net/tcp", encoding="ascii").read()
        table += open("/proc/thread-self/net/tcp6", encoding="ascii").read()
    return f":{port:04X} 0" in table
