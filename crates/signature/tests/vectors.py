#!/usr/bin/env python3
"""Writes botocore.json: requests that botocore signed, at random and the same each time. Run with the python of `scripts/s3-clients`:

$(scripts/s3-clients)/python crates/signature/tests/vectors.py > crates/signature/tests/botocore.json
"""

import datetime
import json
import random
import sys
from urllib.parse import quote

from botocore import auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

NOW = datetime.datetime(2030, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
rng = random.Random(5)
KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"


class Clock(datetime.datetime):
    @classmethod
    def utcnow(cls):
        return NOW.replace(tzinfo=None)

    @classmethod
    def now(cls, tz=None):
        return NOW


def some(most):
    """Bytes that need encoding as often as not."""
    return bytes(rng.choice(b" +%/&=?#~!*'();:@$,[]-_.aZ0\x00\x7f\xc3\xa4\xff\"\\") for _ in range(rng.randrange(most)))


def query():
    names = ["acl", "prefix", "versionId", "partNumber", "x-id", "a", "A", "a-b"]
    return [(rng.choice(names), rng.choice([None, "", quote(some(12), safe="-_.~")])) for _ in range(rng.randrange(5))]


def headers():
    found = {}
    for name in rng.sample(["x-amz-meta-a", "X-Amz-Meta-B", "x-amz-acl", "Content-Type", "Range", "x-amz-storage-class"], rng.randrange(4)):
        found[name] = " ".join(rng.choice(["one", "", "two, three", "=/+;"]) for _ in range(rng.randrange(1, 5)))
    return found


def vector():
    path = "/bucket/" + quote(some(20), safe="/-_.~")
    pairs = [name if value is None else f"{name}={value}" for name, value in query()]
    url = "http://gateway.example:9000" + path + ("?" + "&".join(pairs) if pairs else "")
    method = rng.choice(["GET", "PUT", "HEAD", "DELETE", "POST"])
    is_link, region = rng.random() < 0.5, rng.choice(["us-east-1", "eu-central-1"])
    request = AWSRequest(method=method, url=url, headers=headers(), data=some(30) if method == "PUT" and not is_link else b"")
    credentials = Credentials(KEY, SECRET)
    if is_link:
        auth.S3SigV4QueryAuth(credentials, "s3", region, expires=rng.randrange(1, 604800)).add_auth(request)
    else:
        if rng.random() < 0.3:
            request.headers["X-Amz-Content-SHA256"] = rng.choice(["UNSIGNED-PAYLOAD", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"])
        auth.S3SigV4Auth(credentials, "s3", region).add_auth(request)
    made = request.prepare()
    sent = [[name, value.decode() if isinstance(value, bytes) else value] for name, value in made.headers.items()]
    return {"method": method, "target": made.url.removeprefix("http://gateway.example:9000"), "headers": [["host", "gateway.example:9000"], *sent]}


auth.datetime.datetime = Clock
if hasattr(auth, "get_current_datetime"):
    auth.get_current_datetime = lambda *_, **__: NOW.replace(tzinfo=None)
vectors = [vector() for _ in range(120)]
json.dump({"access_key": KEY, "secret": SECRET, "unix_s": int(NOW.timestamp()), "requests": vectors}, sys.stdout, indent=None, separators=(",", ":"))
print()
