"""Programs that run beside a test, and programs that it waits for."""

import os
import signal
import subprocess
import time
from pathlib import Path


class Process:
    """A program in the background, with its output in a log file."""

    def __init__(self, argv, log, env=None):
        self.argv = [str(word) for word in argv]
        self.log = log
        with open(log, "ab") as sink:
            self.child = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
            )

    @property
    def pid(self):
        return self.child.pid

    def alive(self):
        return self.child.poll() is None

    def tail(self, lines=30):
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def kill(self):
        """SIGKILL: what a crash looks like."""
        if self.alive():
            self.child.send_signal(signal.SIGKILL)
        return self.child.wait()

    def signal(self, number):
        self.child.send_signal(number)

    def wait(self, seconds):
        """Its exit code; fails when it does not end in time."""
        try:
            return self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.argv[0]} did not end within {seconds} s\n{self.tail()}") from None

    def stop(self, seconds=15):
        """SIGTERM, and SIGKILL to who does not listen."""
        if not self.alive():
            return self.child.returncode
        self.child.send_signal(signal.SIGTERM)
        try:
            return self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            return self.kill()

    def cpu_seconds(self):
        """User and system time so far."""
        with open(f"/proc/{self.pid}/stat", encoding="ascii", errors="replace") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def threads(self):
        """{(name, id): (seconds on a processor, voluntary switches)} of the threads that there are."""
        found = {}
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            try:
                status = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines() if ":\t" in line)
                on_processor_ns = int((task / "schedstat").read_text().split()[0])
            except OSError:
                continue  # It ended meanwhile.
            found[status["Name"], task.name] = on_processor_ns / 1e9, int(status["voluntary_ctxt_switches"])
        return found

    def resident_bytes(self, which="VmRSS"):
        """Resident memory now (VmRSS) or at most so far (VmHWM)."""
        with open(f"/proc/{self.pid}/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith(which + ":"):
                    return int(line.split()[1]) << 10
        raise AssertionError(f"no {which} of process {self.pid}")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def written_bytes(self):
        """Bytes that the process caused to be sent to storage."""
        with open(f"/proc/{self.pid}/io", encoding="ascii") as io:
            return int(dict(line.split(": ") for line in io)["write_bytes"])


def run(*argv, seconds=300, ok=(0,), env=None, cwd=None):
    """Runs a program to its end; fails when it takes too long or exits otherwise. Returns the finished process."""
    argv = [str(word) for word in argv]
    begun = time.monotonic()
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            env={**os.environ, **(env or {})},
            cwd=cwd,
        )
    except subprocess.TimeoutExpired as late:
        raise AssertionError(f"{' '.join(argv)}: not done within {seconds} s\n{late.stdout}\n{late.stderr}") from None
    done.seconds = time.monotonic() - begun
    if ok is not None and done.returncode not in ok:
        raise AssertionError(
            f"{' '.join(argv)}: exit {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        )
    return done
