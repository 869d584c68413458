"""Hits that the store confirms, each: links signed by a client, before versitygw; beside the store itself and rclone's server of the same
files. 4 KiB objects cost one round trip each."""

import re

from rig import Rig, check, run
from rig.server import free_port
from rig.store import Store, s3_clients, s3_environment

from . import servers
from .turns import cells, ratio, turns

SECTION = "forward"
LINKS = """
import sys, boto3
from botocore.client import Config
endpoint, store, kind, length, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
def client(at):
    return boto3.client("s3", endpoint_url=at, config=Config(s3={"addressing_style": "path"}, signature_version="s3v4"))
direct, signing = client(store), client(endpoint)
if not any(bucket["Name"] == kind for bucket in direct.list_buckets()["Buckets"]):
    direct.create_bucket(Bucket=kind)
    for at in range(count):
        direct.put_object(Bucket=kind, Key=str(at), Body=bytes([at % 256]) * length)
for at in range(count):
    url = signing.generate_presigned_url("get_object", Params={"Bucket": kind, "Key": str(at)}, ExpiresIn=3600)
    print(url.removeprefix(endpoint))
"""


def measure(setting, report):
    clients = s3_clients()
    with Rig() as rig:
        store = Store(rig)
        store.start()
        environment = s3_environment(rig.directory)
        straight = servers.Served(store.process, store.port)
        gateway = servers.committed(rig, straight)

        def links(served, kind, length, count):
            endpoint = f"http://127.0.0.1:{served.port}"
            text = run(clients / "python", "-c", LINKS, endpoint, store.uri(), kind, length, count, env=environment).stdout
            path = rig.path(f"links-{kind}-{served.port}")
            path.write_text(text)
            return path

        large = {served: links(served, "large", servers.LARGE_BYTES, servers.LARGE_COUNT) for served in (straight, gateway)}
        rclone = _rclone(rig, clients)
        large[rclone] = servers.targets(rig, "large")
        peers = {"forebay": gateway, "rclone": rclone, "store": straight}

        def get(_name, served, requests=4 if setting.quick else 24):
            return servers.load(served, large[served], servers.CLIENTS, requests, servers.LARGE_BYTES)

        for _ in range(2):
            get("forebay", gateway, servers.LARGE_COUNT // servers.CLIENTS)
        rounds = turns(setting, SECTION, peers, get)
        small = links(gateway, "small", servers.SMALL_BYTES, servers.SMALL_COUNT)
        asked = _asked(store, lambda: servers.load(gateway, small, 1, servers.SMALL_COUNT, servers.SMALL_BYTES))
        check(asked >= servers.SMALL_COUNT, f"the store was asked {asked} times only: its log is not what it was")
        again = _asked(store, lambda: servers.load(gateway, small, 1, servers.SMALL_COUNT, servers.SMALL_BYTES))
    cells(report, SECTION, rounds)
    report.bar("confirmed 16 MiB hits of rclone's", ratio(rounds, SECTION, "forebay", "rclone", "bytes_per_s"), 1.0, True, "rclone")
    report.bar("round trips of a confirmed 4 KiB hit", again / servers.SMALL_COUNT, 1.0, False)


def _rclone(rig, clients):
    """rclone serve s3, for anybody, over the files that the store has."""
    port = free_port()
    argv = [clients / "rclone", "serve", "s3", "--addr", f"127.0.0.1:{port}", rig.path("store.data")]
    return servers.Served(rig.start(*argv, name="rclone", env={"RCLONE_CONFIG": str(rig.path("no-rclone"))}), port)


def _asked(store, action):
    """How many requests the store logged meanwhile."""
    count = lambda: len(re.findall(r"\| (?:GET|HEAD) \|", store.process.log.read_text(errors="replace")))
    before = count()
    action()
    return count() - before
