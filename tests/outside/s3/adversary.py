"""Somebody who wants what is cached for others: run with the gateway's address, `strict` or `ttl`, by the clients' own python.

The owner has read everything through the gateway, so all of it is in the cache. Each attempt prints what it was, and ends the program if a
byte of the secret came out.
"""

import http.client
import json
import sys
import time
from urllib.parse import quote, urlsplit

import boto3
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.client import Config
from botocore.credentials import Credentials

address, mode, owner_key, owner_secret, other_key, other_secret = sys.argv[1:7]
endpoint = f"http://{address}"
OWNER, OTHER = Credentials(owner_key, owner_secret), Credentials(other_key, other_secret)
SECRET = b"the secret of the owner " * 400


def client(credentials):
    return boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=credentials.access_key,
        aws_secret_access_key=credentials.secret_key, config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0}),
    )


def send(method, target, headers):
    """(status, X-Cache, body) of exactly these bytes."""
    connection = http.client.HTTPConnection(address, timeout=20)
    connection.putrequest(method, target, skip_accept_encoding=True, skip_host=any(name.lower() == "host" for name in headers))
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, answer.getheader("x-cache"), body


def signed(method, path, credentials, headers=None):
    request = AWSRequest(method=method, url=endpoint + path, headers={"x-amz-content-sha256": "UNSIGNED-PAYLOAD", **(headers or {})})
    S3SigV4Auth(credentials, "s3", "us-east-1").add_auth(request)
    return dict(request.headers)


def presigned(path, credentials, seconds):
    request = AWSRequest(method="GET", url=endpoint + path)
    S3SigV4QueryAuth(credentials, "s3", "us-east-1", expires=seconds).add_auth(request)
    parts = urlsplit(request.url)
    return f"{parts.path}?{parts.query}"


def allowed(what, target, headers, method="GET"):
    status, cache, body = send(method, target, headers)
    print(f"{what}: {status} {cache}")
    assert status in (200, 206) and (method == "HEAD" or SECRET[:8] in body), f"{what}: {status} {body[:200]}"
    return cache


def denied(what, target, headers, method="GET"):
    status, cache, body = send(method, target, headers)
    print(f"{what}: {status} {cache}")
    assert status not in (200, 206, 304), f"{what}: {status} {cache}"
    assert SECRET[:8] not in body and cache not in ("HIT", "PARTIAL", "REVALIDATED"), f"{what}: {cache} {body[:200]}"


def policy(*statements):
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


owner = client(OWNER)
owner.create_bucket(Bucket="vault")
for key in ("secret", "a/b", "public", "shared"):
    owner.put_object(Bucket="vault", Key=key, Body=SECRET)
link = presigned("/vault/secret", OWNER, 600)
short = presigned("/vault/secret", OWNER, 3)
by_header = signed("GET", "/vault/secret", OWNER)
begun = time.monotonic()
for _ in range(3):
    for key in ("secret", "a/b", "public", "shared"):
        assert owner.get_object(Bucket="vault", Key=key)["Body"].read() == SECRET
    cache = allowed("the owner's link", link, {}), allowed("the owner's short link", short, {})
    allowed("the owner's own request", "/vault/secret", by_header)
assert cache == ("HIT", "HIT"), cache

denied("anonymous", "/vault/secret", {})
denied("anonymous, a range", "/vault/secret", {"Range": "bytes=0-99"})
denied("anonymous, head", "/vault/secret", {}, "HEAD")
denied("another user", "/vault/secret", signed("GET", "/vault/secret", OTHER))
denied("another user's link", presigned("/vault/secret", OTHER, 600), {})
denied("the owner's key with another's secret", "/vault/secret", signed("GET", "/vault/secret", Credentials(owner_key, other_secret)))
for name in ("Signature=0000", "Signature="):
    forged = dict(by_header)
    forged["Authorization"] = forged["Authorization"].split("Signature=")[0] + name
    denied(f"the owner's request with {name}", "/vault/secret", forged)
denied("the owner's request of another object", "/vault/a/b", by_header)
denied("the owner's request as a link's", "/vault/secret?X-Amz-Signature=" + by_header["Authorization"].rsplit("=", 1)[1], {})
denied("the owner's request at another time", "/vault/secret", {**by_header, "X-Amz-Date": "20200101T000000Z"})
denied("only the owner's name", "/vault/secret", {"Authorization": f"AWS4-HMAC-SHA256 Credential={owner_key}/20300101/us-east-1/s3/aws4_request"})
denied("the owner's name, version 2", "/vault/secret", {"Authorization": f"AWS {owner_key}:xxxxxxxx"})
denied("the owner's link to another object", link.replace("/vault/secret", "/vault/a/b"), {})
denied("the owner's link with another header of the answer", link + "&response-content-type=text/html", {})
denied("the owner's link, longer", link.replace("X-Amz-Expires=600", "X-Amz-Expires=6000"), {})
denied("the owner's link to be changed", link, {}, "DELETE")
denied("the ETag of what is cached", "/vault/secret", {"If-None-Match": owner.head_object(Bucket="vault", Key="secret")["ETag"]})
for target in (
    "/vault/%73ecret", "/vault//secret", "//vault/secret", "/vault/./secret", "/vault/a/../secret", "/vault/%2e%2e/vault/secret", "/VAULT/secret",
    "/vault/secret?", "/vault/secret?versionId=", "/vault/secret?versionId=null", "/vault/secret?partNumber=1", "/vault/secret?x-id=GetObject",
    "/vault%2fsecret", "/vault/secret%00", "/vault/secret#x", f"/vault/{quote('secret', safe='')}?list-type=2",
):
    denied(f"anonymous, {target}", target, {})
    denied(f"another user, {target}", target, signed("GET", target.split("#")[0], OTHER))
denied("anonymous, a name before the gateway's", "/secret", {"Host": f"vault.{address}"})

# What is public is read by all, and no longer when it is not.
everybody = {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::vault/public"}
one = {"Effect": "Allow", "Principal": {"AWS": [other_key]}, "Action": "s3:GetObject", "Resource": "arn:aws:s3:::vault/shared"}
owner.put_bucket_policy(Bucket="vault", Policy=policy(everybody, one))
request = signed("GET", "/vault/shared", OTHER)
for _ in range(2):
    allowed("public, anonymous", "/vault/public", {})
    allowed("shared with another", "/vault/shared", request)
denied("shared with another, anonymous", "/vault/shared", {})
owner.delete_bucket_policy(Bucket="vault")
denied("public no longer", "/vault/public", {})
denied("shared no longer", "/vault/shared", request)
denied("shared no longer, a new request", "/vault/shared", signed("GET", "/vault/shared", OTHER))

time.sleep(max(0, 4.5 - (time.monotonic() - begun)))
denied("the owner's short link, expired", short, {})
if mode == "ttl":
    assert allowed("the owner's link, still good", link, {}) in ("HIT", "REVALIDATED")
owner.delete_object(Bucket="vault", Key="secret")
denied("the owner's link to what is gone", link, {})
print("done")
