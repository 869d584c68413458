"""A client host: Forebay over a paced cache disk, a volume of it whose every page is cached, and fio that reads it.

Throughput over time is fio's: what a client saw. Which path served is Forebay's: only it knows.
"""

import json
import threading
import time
from dataclasses import dataclass

from measure.fio import COMMANDS
from rig import KIB, MIB, Forebay, Volume, check, eventually
from volume_sections.servers import Served

from .ground import Ground
from .policies import CACHE_ONLY, PROFILED
from .setting import BACKEND_LATENCY, DISK_BYTES_PER_SECOND, LINK_BYTES_PER_SECOND

BLOCK_BYTES = 64 * KIB
TICK_S = 0.1
VOLUME = "v"
# The most jobs of a load, and one that fills: each may hold a part of the memory for requests in flight.
CLIENTS = 17


@dataclass(frozen=True)
class Load:
    """`jobs` connections with `depth` requests in flight each."""

    jobs: int
    depth: int
    read_percent: int = 100

    @property
    def name(self):
        return f"{self.depth}x{self.jobs}" + ("" if self.read_percent == 100 else f"-{self.read_percent}%-reads")


class HostedForebay(Forebay):
    """A server in a namespace; what is asked of it is asked from there."""

    def __init__(self, host, *words, **options):
        super().__init__(*words, **options)
        self.host = host
        self.inside = host.words()

    def get(self, path, method="GET"):
        with self.host.entered():
            return super().get(path, method)


class Site:
    """Forebay in a client's namespace over a paced disk, in front of a volume of the store."""

    def __init__(self, rig, ground, number, size_bytes, setting, memory=None):
        self.rig = rig
        self.size_bytes = size_bytes
        self.seed = setting.seed
        self.name = f"client{number}"
        self.disk = ground.disk(size_bytes + size_bytes // 8 + 64 * MIB)
        backend = ground.backend(number, size_bytes, BACKEND_LATENCY)
        cache = {"disk": self.disk.path, "disk_size": None, "sparse": True, "memory": memory or setting.memory}
        self.forebay = HostedForebay(
            ground.client(number), rig, [Volume(VOLUME, backend)], cache=cache, limits={"clients_max": CLIENTS}, name=self.name
        )
        self.forebay.start()
        self.loads = 0

    def condition(self):
        """As NetCAS does before each run, scaled: all is written in order, a quarter of it once more at random, and
        flushed. Then all is read until nothing is missed: what follows are hits."""
        self._fio_to_end("write", MIB, 4, self.size_bytes)
        self._fio_to_end("randwrite", BLOCK_BYTES, 16, self.size_bytes, "--io_size=%d" % (self.size_bytes // 4))
        self.forebay.verb("flush", VOLUME)
        Served(self.forebay).warm(self.size_bytes)
        self.forebay.settle(60)

    def _fio_to_end(self, rw, block_bytes, depth, size_bytes, *more):
        words = self._fio_words(rw, block_bytes, depth, 1, size_bytes)
        self.rig.start(*words, *more, name=f"{self.name}-fill").wait(600)

    def _fio_words(self, rw, block_bytes, depth, jobs, size_bytes):
        words = ["fio", "--name=job", "--ioengine=nbd", f"--uri={self.forebay.uri()}", "--thread", f"--rw={rw}"]
        words += [f"--bs={block_bytes}", f"--iodepth={depth}", f"--numjobs={jobs}", "--group_reporting"]
        words += [f"--size={size_bytes}", "--norandommap", f"--randseed={self.seed}", "--output-format=json"]
        return words

    def split(self, policy):
        """From now on, and from nothing: a policy that was set before has forgotten."""
        if policy is not CACHE_ONLY:
            # The same policy once more might go on with what it knows.
            self._order(CACHE_ONLY)
        self._order(policy)

    def profile(self):
        """What `netcas` goes by; quickly."""
        saved = self.rig.path(f"{self.name}.profile.json")
        self.forebay.verb("profile", VOLUME, "--quick", "--out", saved, seconds=600)

    def _order(self, policy):
        status, said = self.forebay.get(f"/api/v1/volumes/{VOLUME}/split?{policy.query()}", "POST")
        check(status // 100 == 2, f"split by {policy}: {status} {said}")

    def begin(self, load, seconds):
        """A load that ends by itself."""
        self.loads += 1
        prefix = self.rig.path(f"{self.name}-{self.loads}")
        rw = "randread" if load.read_percent == 100 else "randrw"
        words = self._fio_words(rw, BLOCK_BYTES, load.depth, load.jobs, self.size_bytes)
        words += [f"--runtime={int(seconds * 1000)}ms", "--time_based"]
        words += [f"--rwmixread={load.read_percent}"] if rw == "randrw" else []
        words += ["--per_job_logs=0", "--log_unix_epoch=1", f"--log_avg_msec={int(TICK_S * 1000)}"]
        COMMANDS.setdefault(load.name, " ".join(words))
        before = self.counters()
        process = self.rig.start(*words, f"--write_bw_log={prefix}", name=f"{self.name}-fio")
        return Running(self, process, prefix, before, seconds)

    def counters(self):
        return self.forebay.stats(VOLUME, pause_s=0)

    def disk_counters(self):
        return self.forebay.stats(pause_s=0)["disk"]


class Running:
    """fio, and what Forebay counts meanwhile."""

    def __init__(self, site, process, prefix, before, seconds):
        self.site = site
        self.process = process
        self.prefix = prefix
        self.seconds = seconds
        self.before = before
        self.samples = []
        self.wanted = True
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()
        eventually(self._has_begun, "fio reads", 30, pause=0.02)

    def _has_begun(self):
        check(self.process.alive(), f"fio ended: {self.process.tail()}")
        done = self.samples[-1][1] if self.samples else self.before
        return done["read_bytes"] > self.before["read_bytes"]

    def _watch(self):
        last = None
        while self.wanted:
            try:
                now = self.site.counters()
            except OSError:
                return  # Whoever waits for the next sample notices.
            if last is None or now["read_bytes"] != last["read_bytes"]:
                self.samples.append((time.time(), now))
                last = now
            time.sleep(TICK_S / 4)

    def next_sample(self):
        """(Time, counters) of the next publication: between two of them a rate is exact."""
        seen = len(self.samples)
        eventually(lambda: len(self.samples) > seen, "the load goes on", 30, pause=0.005)
        return self.samples[-1]

    def between(self, begin, end):
        """Bytes a second that clients got from one sample to another."""
        return (moved(end[1]) - moved(begin[1])) / (end[0] - begin[0])

    def end(self):
        """Waits for its end. What it did: Ticks."""
        self._finish(self.process.wait(self.seconds + 60))
        return Ticks(self)

    def stop(self):
        """Now; nothing is wanted of it but that it was well."""
        self.process.signal(2)
        self._finish(self.process.wait(60), (0, 128))

    def _finish(self, code, good=(0,)):
        self.wanted = False
        self.thread.join()
        check(code in good, f"fio: exit {code}: {self.process.tail()}")
        self.after = self.site.counters()
        failed = [key for key in ("read_errors", "write_errors", "split_mismatches") if self.after[key] != self.before[key]]
        check(not failed, f"{failed} of the volume grew: {self.site.forebay.process.tail()}")


def moved(counters):
    return counters["read_bytes"] + counters["write_bytes"]


class Ticks:
    """What a load got, over time; times are seconds of the epoch."""

    def __init__(self, running):
        self.entries = parse(running.prefix)
        self.samples = running.samples
        self.gained = {key: running.after[key] - running.before[key] for key in running.after if isinstance(running.after[key], int)}
        text = running.process.log.read_text()
        job = json.loads(text[text.index("{"):])["jobs"][0]
        self.fio_bytes = job["read"]["io_bytes"] + job["write"]["io_bytes"]
        self.logged_bytes = sum((to - begin) * rate for begin, to, rate in self.entries)

    def bytes_per_second(self, begin, to):
        """Of all jobs, in the mean of that time."""
        inside = ((max(begin, at), min(to, end), rate) for at, end, rate in self.entries)
        return sum(max(0.0, end - at) * rate for at, end, rate in inside) / (to - begin)

    def disk_share(self, begin, to):
        """Of the bytes that hits took of the two paths, those of the cache disk."""
        disk = self._counted("disk_read_bytes", begin, to)
        backend = self._counted("backend_read_bytes", begin, to)
        return disk / max(1.0, disk + backend)

    def backend_bytes(self, begin, to):
        return self._counted("backend_read_bytes", begin, to)

    def _counted(self, key, begin, to):
        return self._at(key, to) - self._at(key, begin)

    def _at(self, key, when):
        """The counter then, linear between samples."""
        earlier = self.samples[0]
        for sample in self.samples:
            if sample[0] >= when:
                span = sample[0] - earlier[0]
                part = (when - earlier[0]) / span if span > 0 else 0.0
                return earlier[1][key] + max(0.0, part) * (sample[1][key] - earlier[1][key])
            earlier = sample
        return earlier[1][key]


def parse(prefix):
    """Rows of (from, to, bytes a second), one a job and tick."""
    rows = []
    path = prefix.with_name(prefix.name + "_bw.log")
    for line in path.read_text().splitlines():
        stamp, kib_per_s, *_ = line.split(",")
        to = int(stamp) / 1000
        rows.append((to - TICK_S, to, int(kib_per_s) * 1024))
    return rows


def ready(rig, setting, size_bytes, hosts=1, memory=None):
    """The ground and so many sites on it, which share the rate of one disk and one link: every page cached, paced, and
    profiled if a policy wants that."""
    ground = Ground(rig, LINK_BYTES_PER_SECOND)
    sites = [Site(rig, ground, number, size_bytes, setting, memory) for number in range(hosts)]
    for site in sites:
        site.condition()
        site.disk.shape(DISK_BYTES_PER_SECOND / hosts)
    ground.shape_link()
    if PROFILED in setting.known:
        for site in sites:
            site.profile()
    return ground, sites
