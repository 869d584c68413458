"""A test's own directory and everything that stands in it."""

import contextlib
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from .backend import Backend
from .disk import FuseDisk
from .process import Process
from .server import Forebay, Volume

KEEP = "KEEP_TEST_FILES"


class Rig:
    """Use it in a `with`: what was started is ended in the opposite order."""

    def __init__(self):
        self.directory = Path(tempfile.mkdtemp(prefix="forebay-"))
        self._stack = contextlib.ExitStack()
        self._counts = {}
        self._started = []

    def __enter__(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: sys.exit(128 + number))
        return self

    def __exit__(self, kind, error, trace):
        if kind is not None and not issubclass(kind, SystemExit):
            self._tell()
        self._stack.close()
        if os.environ.get(KEEP):
            print(f"files are kept in {self.directory}", flush=True)
        else:
            shutil.rmtree(self.directory, ignore_errors=True)
        return False

    def path(self, name):
        return self.directory / name

    def start(self, *argv, name, env=None):
        """A program that is ended with the test."""
        self._counts[name] = self._counts.get(name, 0) + 1
        process = Process(argv, self.path(f"{name}.{self._counts[name]}.log"), env)
        self._started.append(process)
        self._stack.callback(process.kill)
        return process

    def backend(self, *plugin, name="backend", **options):
        """An nbdkit server; see Backend."""
        backend = Backend(self, name, plugin, **options)
        backend.start()
        return backend

    def image(self, name, size_bytes, content=None):
        """A sparse file of that size, beginning with `content`."""
        path = self.path(name)
        with open(path, "wb") as image:
            if content is not None:
                image.write(content)
            image.truncate(size_bytes)
        return path

    def forebay(self, volumes, start=True, **options):
        """A `forebay serve`; `volumes` maps names to back ends (Backend, Volume or text)."""
        rows = [row if isinstance(row, Volume) else Volume(name, row) for name, row in volumes.items()]
        forebay = Forebay(self, rows, **options)
        if start:
            forebay.start()
        return forebay

    def fuse_disk(self, *server):
        """The export as a file, by way of nbdfuse; see FuseDisk."""
        disk = FuseDisk(self, *server)
        self._stack.callback(disk.close)
        disk.open()
        return disk

    def at_end(self, action):
        self._stack.callback(action)

    def _tell(self):
        """What the programs said when they ran last, for whoever reads the failure."""
        for process in {process.log.name.split(".")[0]: process for process in self._started}.values():
            state = "running" if process.alive() else f"exit {process.child.returncode}"
            print(f"--- {process.argv[0]} ({state}), last lines of {process.log.name}:", flush=True)
            print(process.tail(12), flush=True)
