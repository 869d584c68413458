"""`forebay serve`, and what can be asked of it."""

import http.client
import json
import os
import signal
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from .backend import Backend
from .nbd import NbdClient
from .process import run
from .verdict import check, equal, eventually

# Counters are published every 100 ms.
PUBLISHED_S = 0.25
ROOT = Path(__file__).resolve().parents[3]


def program(name="forebay"):
    """A program of the project's: what `cargo build` made; FOREBAY names another `forebay`."""
    target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
    path = target / "debug" / name
    if name == "forebay":
        path = Path(os.environ.get("FOREBAY") or path)
    check(path.exists(), f"{path} does not exist; run `cargo build -p {'forebay-cli' if name == 'forebay' else f'forebay-{name}'}`")
    return path


@dataclass
class Volume:
    """A [[volume]] table."""

    name: str
    backend: object
    keys: dict = field(default_factory=dict)

    def address(self):
        return self.backend.uri() if isinstance(self.backend, Backend) else str(self.backend)


def config_text(tables, volumes):
    """A configuration: `tables` maps "cache" and so on to keys; keys that are None are left out."""
    lines = []
    for table, keys in tables.items():
        if not keys:
            continue
        lines.append(f"[{table}]")
        lines += [f"{key} = {_toml(value)}" for key, value in keys.items() if value is not None]
    for volume in volumes:
        lines += ["[[volume]]", f"name = {_toml(volume.name)}", f"backend = {_toml(volume.address())}"]
        lines += [f"{key} = {_toml(value)}" for key, value in volume.keys.items() if value is not None]
    return "\n".join(lines) + "\n"


def _toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(str(value) if isinstance(value, Path) else value)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listens(port, address="127.0.0.1"):
    """Whether somebody takes connections there."""
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) == 0


class Forebay:
    """A server with its configuration; it can be started again and again.

    cache, limits, admission, listen, s3: keys of those tables, over the defaults here (a memory tier of 64 MiB, a disk
    tier of 256 MiB in a file of the rig, one unix socket). `inside`: words that start a program elsewhere.
    """

    inside = ()

    def __init__(self, rig, volumes, cache=None, limits=None, admission=None, listen=None, s3=None, name="forebay"):
        self.rig = rig
        self.name = name
        self.volumes = volumes
        self.socket = rig.path(f"{name}.sock")
        self.port = free_port()
        self.tables = {
            "cache": {
                "disk": rig.path(f"{name}.cache"),
                "disk_size": "256MiB",
                "sparse": True,
                "memory": "64MiB",
                "state_dir": rig.path(f"{name}.state"),
                **(cache or {}),
            },
            "admission": admission or {},
            "listen": {"unix": self.socket, **(listen or {})},
            "admin": {"listen": f"127.0.0.1:{self.port}"},
            "s3": s3 or {},
            "limits": limits or {},
            "log": {"level": "info", "format": "json"},
        }
        self.config = rig.path(f"{name}.toml")
        self.process = None

    def start(self, *flags, ready=True, seconds=20):
        """Starts it, and waits until it serves."""
        self.spawn(*flags)
        if ready:
            eventually(self._ready, "forebay is ready", seconds)

    def spawn(self, *flags):
        """Starts it and waits for nothing."""
        self.rig.path(f"{self.name}.state").mkdir(exist_ok=True)
        self.config.write_text(config_text(self.tables, self.volumes))
        self.process = self.rig.start(*self.inside, program(), "serve", "--config", self.config, *flags, name=self.name)

    def refused(self, *flags, seconds=20):
        """Starts it, expects it to end by itself, and returns its exit code and what it said."""
        self.spawn(*flags)
        code = self.process.wait(seconds)
        return code, self.process.tail(100)

    def kill(self):
        """SIGKILL."""
        self.process.kill()

    def stop(self, seconds=30):
        """SIGTERM; fails unless it drains in time and exits 0."""
        self.process.signal(signal.SIGTERM)
        equal(self.process.wait(seconds), 0, f"exit code after SIGTERM\n{self.process.tail()}\nexit code")

    def settle(self, seconds=30):
        """Waits until the cache disk is up to date: no dirty sectors, no region in flight, nothing stored."""
        def settled():
            stats = self.stats()
            return not (stats["disk"]["dirty_sectors"] or stats["intent_regions"] or stats["queues"]["stores"])

        eventually(settled, "the cache disk is up to date", seconds, pause=0.2)

    def recovered(self, seconds=30):
        """Waits until the slot table has been read."""
        eventually(lambda: not self.stats(pause_s=0)["recovery"]["running"], "the slot table has been read", seconds)

    def uri(self, volume=None):
        return f"nbd+unix:///{quote(volume or self.volumes[0].name)}?socket={quote(str(self.socket))}"

    def client(self, volume=None, **options):
        """An NBD client of that volume, closed with the test."""
        client = NbdClient(self.socket, volume or self.volumes[0].name, **options)
        self.rig.at_end(client.close)
        return client

    def get(self, path, method="GET"):
        """(status, body) of the admin endpoint."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def stats(self, volume=None, pause_s=PUBLISHED_S):
        """Everything that is counted until now; of one volume when it is named."""
        time.sleep(pause_s)
        status, body = self.get("/api/v1/stats")
        equal(status, 200, f"status of /api/v1/stats ({body})")
        stats = json.loads(body)
        return next(row for row in stats["volumes"] if row["name"] == volume) if volume else stats

    def counted(self, action, volume=None):
        """What `action()` added to the counters of a volume."""
        name = volume or self.volumes[0].name
        before = self.stats(name)
        action()
        after = self.stats(name)
        return {key: after[key] - before[key] for key in after if isinstance(after[key], int)}

    def verb(self, *words, ok=(0,), seconds=60):
        """`forebay WORDS`, asking this server."""
        return run(*self.inside, program(), *words, ok=ok, seconds=seconds, env={"FOREBAY_ADMIN_LISTEN": f"127.0.0.1:{self.port}"})

    def _ready(self):
        check(self.process.alive(), f"forebay ended: {self.process.tail()}")
        try:
            return self.get("/readyz")[0] == 200
        except OSError:
            return False
