"""Clients that overwrite, read, copy, delete and list few keys at one time, through a gateway and past it: see s3/history.py."""

import json
import shutil
from pathlib import Path

from .process import run
from .server import free_port
from .store import s3_clients, s3_environment
from .verdict import check, equal, seed

SCRIPTS = Path(__file__).resolve().parents[1] / "s3"
BUCKET = """
import sys, json, boto3
s3 = boto3.client("s3", endpoint_url=sys.argv[1])
s3.create_bucket(Bucket="bucket")
everybody = {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::bucket/*"}
s3.put_bucket_policy(Bucket="bucket", Policy=json.dumps({"Version": "2012-10-17", "Statement": [everybody]}))
"""
SEED = seed()


def open_bucket(rig, store):
    """Makes the bucket that everybody may read."""
    run(s3_clients() / "python", "-c", BUCKET, store.uri(), env=s3_environment(rig.directory))


def look(rig, name, port, ttl_s, seconds, **keys):
    """What clients of a store on that port, and of a gateway with these keys before it, saw that they should not have; each is told."""
    listen = f"127.0.0.1:{free_port()}"
    s3 = {"listen": listen, "backend": f"http://127.0.0.1:{port}", "metadata_ttl": f"{ttl_s}s", **keys}
    forebay = rig.forebay({}, s3=s3, name=f"forebay-{name}")
    file = rig.path(f"{name}.history")
    words = (listen, f"127.0.0.1:{port}", "bucket", seconds, SEED, ttl_s, file)
    python = s3_clients() / "python"
    done = run(python, SCRIPTS / "history.py", *words, seconds=seconds + 60, env=s3_environment(rig.directory))
    seen = json.loads(done.stdout)
    forebay.stop()
    equal(seen["died"], [], "clients that died")
    cache = {word: sum(count for what, count in seen["counts"].items() if what.endswith(word)) for word in ("HIT", "MISS", "PARTIAL", "REVALIDATED")}
    print(f"{name}: {seen['operations']} operations, {seen['through']} of them through the gateway: {cache}", flush=True)
    check(seen["operations"] > 60 * seconds, f"too few operations to see anything: {seen['operations']}")
    check(cache["HIT"] + cache["REVALIDATED"] > 2 * seconds and cache["MISS"] > 2 * seconds, f"the cache is not in it: {cache}")
    bad = seen["wrong"] + seen["violations"]
    for line in bad[:20]:
        print(f"  {line}", flush=True)
    if bad:
        kept = Path("/tmp") / f"s3-history-{name}-{SEED}.txt"
        shutil.copy(file, kept)
        print(f"  all of it is in {kept}", flush=True)
    return bad
