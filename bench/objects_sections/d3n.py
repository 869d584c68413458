"""Hits that the store confirms, each, beside Ceph's own RGW with D3N's cache: the same gateway of the same cluster is the store. 64 objects of
16 MiB, 8 clients, links signed by a client."""

import os
import shutil

from measure.setting import ROOT
from rig import GIB, Rig, eventually, run
from rig.server import free_port
from rig.store import KEY, SECRET, made, runs, s3_clients, s3_environment

from . import servers
from .forward import LINKS
from .turns import cells, ratio, turns

SECTION = "d3n"
D3N = f"""rgw_d3n_l1_local_datacache_enabled = true
rgw_d3n_l1_datacache_persistent_path = {{directory}}/d3n/
rgw_d3n_l1_datacache_size = {4 * GIB}"""


def measure(setting, report):
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        report.skipped(SECTION, "a Debian with Ceph 18 takes root and debootstrap")
        return
    root, clients = made("ceph-d3n", 580), s3_clients()
    with Rig() as rig:
        store = D3nStore(rig, root)
        store.start()
        environment = s3_environment(rig.directory)
        served = servers.Served(store, store.port)
        gateway = servers.committed(rig, served)

        def links(of):
            argv = [clients / "python", "-c", LINKS, f"http://{of.address}", f"http://{served.address}", "large"]
            path = rig.path(f"links-{of.port}")
            path.write_text(run(*argv, servers.LARGE_BYTES, servers.LARGE_COUNT, env=environment, seconds=300).stdout)
            return path

        targets = {of: links(of) for of in (served, gateway)}
        peers = {"forebay": gateway, "d3n": served}

        def get(_name, of, requests=4 if setting.quick else 24):
            return servers.load(of, targets[of], servers.CLIENTS, requests, servers.LARGE_BYTES)

        for of in (served, gateway):
            for _ in range(2):
                get("", of, servers.LARGE_COUNT // servers.CLIENTS)
        report.cell(SECTION, d3n_cache_bytes=store.cached_bytes())
        rounds = turns(setting, SECTION, peers, get)
    cells(report, SECTION, rounds)
    report.bar("confirmed 16 MiB hits of D3N's", ratio(rounds, SECTION, "forebay", "d3n", "bytes_per_s"), 3.0, True, "d3n")


class D3nStore:
    """Ceph 18's RGW with D3N's cache, in a Debian of its own. It looks like a process of the rig's."""

    argv = ("radosgw",)

    def __init__(self, rig, root):
        self.rig, self.root, self.port = rig, root, free_port()
        self.inside = f"/srv/{os.getpid()}"
        self.directory = root / self.inside[1:]

    def start(self):
        self.directory.mkdir(parents=True)
        (self.directory / "d3n").mkdir()
        shutil.copy(ROOT / "scripts" / "ceph-up", self.directory)
        self.rig.at_end(self.stop)
        rgw = D3N.format(directory=self.inside)
        # What is mounted goes with the last daemon.
        begin = f"mount -t proc proc '{self.root}/proc'; exec chroot '{self.root}' {self.inside}/ceph-up {self.inside} {self.port} {free_port()} {KEY} {SECRET}"
        run("unshare", "--mount", "sh", "-ec", begin, env={"PATH": os.environ["PATH"], "FOREBAY_CEPH_RGW": rgw}, seconds=240)

    def stop(self):
        pids = [int(path.read_text()) for path in (self.directory / "run").glob("*.pid")]
        run(ROOT / "scripts" / "ceph-up", "--stop", self.directory)
        eventually(lambda: not any(runs(pid) for pid in pids), "Ceph's daemons have ended", 30)
        shutil.rmtree(self.directory)

    @property
    def pid(self):
        return int((self.directory / "run" / "client.rgw.pid").read_text())

    def alive(self):
        return runs(self.pid)

    def tail(self):
        return (self.directory / "log" / "client.rgw.log").read_text(errors="replace")[-500:]

    def cached_bytes(self):
        return sum(path.stat().st_size for path in (self.directory / "d3n").rglob("*") if path.is_file())
