"""What it costs to keep uploads on their way: large objects that are written through the cache, beside the same that are written around it."""

import urllib.request

from rig import Rig, equal, run
from rig.store import Store, s3_clients, s3_environment

from . import servers
from .turns import cells, ratio, turns

SECTION = "through"
LINKS = """
import sys, boto3
from botocore.client import Config
endpoint, store, bucket, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
def client(at):
    return boto3.client("s3", endpoint_url=at, config=Config(s3={"addressing_style": "path"}, signature_version="s3v4"))
client(store).create_bucket(Bucket=bucket)
def link(operation, at):
    params = {"Bucket": bucket, "Key": str(at)}
    return client(endpoint).generate_presigned_url(operation, Params=params, ExpiresIn=3600).removeprefix(endpoint)
print(link("get_object", 0))
for at in range(count):
    print("PUT " + link("put_object", at))
"""


def measure(setting, report):
    clients = s3_clients()
    with Rig() as rig:
        store = Store(rig)
        store.start()
        environment = s3_environment(rig.directory)
        served = servers.committed(rig, servers.Served(store.process, store.port))
        endpoint = f"http://127.0.0.1:{served.port}"

        def links(name):
            argv = [clients / "python", "-c", LINKS, endpoint, store.uri(), name, servers.LARGE_COUNT]
            get, *put = run(*argv, env=environment).stdout.splitlines()
            path = rig.path(f"links-{name}")
            path.write_text("\n".join(put) + "\n")
            return path, get

        modes = {name: links(f"mode-{name}") for name in ("through", "around")}

        def write(name, mode):
            requests = servers.LARGE_COUNT // servers.CLIENTS
            return servers.load(served, mode[0], servers.CLIENTS, requests, servers.LARGE_BYTES, f"x-forebay-write: {name}")

        for name, mode in modes.items():
            write(name, mode)
            with urllib.request.urlopen(endpoint + mode[1]) as answer:
                equal(answer.headers["x-cache"], "HIT" if name == "through" else "MISS", f"the first read of what was written {name}")
        rounds = turns(setting, SECTION, modes, write)
    cells(report, SECTION, rounds)
    report.bar("uploads through the cache of the rate of those around", ratio(rounds, SECTION, "through", "around", "bytes_per_s"), 0.95, True)
