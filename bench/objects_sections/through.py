"""What it costs to keep uploads on their way: large objects that are written through the cache, beside the same that are written around it. For the
picture also the store itself."""

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


def measure(setting, report, host=servers.HERE, section=SECTION, where=""):
    clients = s3_clients()
    with Rig() as rig:
        store = Store(rig, host=host)
        store.start()
        environment = s3_environment(rig.directory)
        straight = servers.Served(store.process, store.port, host)
        gateway = servers.committed(rig, straight)

        def links(name, served):
            argv = [clients / "python", "-c", LINKS, f"http://{served.address}", store.uri(), name, servers.LARGE_COUNT]
            get, *put = run(*argv, env=environment).stdout.splitlines()
            path = rig.path(f"links-{name}")
            path.write_text("\n".join(put) + "\n")
            return served, path, get

        modes = {name: links(f"mode-{name}", served) for name, served in (("uncached", straight), ("around", gateway), ("through", gateway))}

        def write(name, mode):
            served, path, _ = mode
            header = None if name == "uncached" else f"x-forebay-write: {name}"
            return servers.load(served, path, servers.CLIENTS, servers.LARGE_COUNT // servers.CLIENTS, servers.LARGE_BYTES, header)

        for name, mode in modes.items():
            write(name, mode)
            if name != "uncached":
                with urllib.request.urlopen(f"http://{gateway.address}{mode[2]}") as answer:
                    equal(answer.headers["x-cache"], "HIT" if name == "through" else "MISS", f"the first read of what was written {name}")
        rounds = turns(setting, section, modes, write)
    cells(report, section, rounds)
    report.bar(f"uploads through the cache of the rate of those around{where}", ratio(rounds, section, "through", "around", "bytes_per_s"), 0.95, True)
