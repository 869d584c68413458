"""Somebody who wants what is cached for others: run with the gateway's address, a mode, two pairs of keys, and what a policy of the store calls the
other one, by the clients' own python. The modes: `strict` and `ttl`; `verify` and `verify-ttl`, where the gateway has the keys and the other may
read vault/shared and write below vault/drop/; `revoked`, where the owner's key is gone and the other has read everything.

The owner has read everything through the gateway, so all of it is in the cache. Each attempt prints what it was, and ends the program if a
byte of the secret came out.
"""

import hashlib
import hmac
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

address, mode, owner_key, owner_secret, other_key, other_secret, other_principal = sys.argv[1:8]
endpoint = f"http://{address}"
OWNER, OTHER = Credentials(owner_key, owner_secret), Credentials(other_key, other_secret)
SECRET = b"the secret of the owner " * 400


def client(credentials):
    return boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=credentials.access_key,
        aws_secret_access_key=credentials.secret_key, config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0}),
    )


def send(method, target, headers, content=b""):
    """(status, X-Cache, body) of exactly these bytes."""
    connection = http.client.HTTPConnection(address, timeout=20)
    connection.putrequest(method, target, skip_accept_encoding=True, skip_host=any(name.lower() == "host" for name in headers))
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders(content or None)
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


class ByChunks(S3SigV4Auth):
    """Signs a request whose body is signed by chunks."""

    def payload(self, request):
        return "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"


def by_chunks(path, credentials, chunks):
    """Headers and body."""
    length = sum(map(len, chunks))
    given = {"x-amz-decoded-content-length": str(length), "content-encoding": "aws-chunked"}
    request = AWSRequest(method="PUT", url=endpoint + path, headers=given)
    ByChunks(credentials, "s3", "us-east-1").add_auth(request)
    last = request.headers["Authorization"].rsplit("=", 1)[1]
    when = request.headers["X-Amz-Date"]
    scope = f"{when[:8]}/us-east-1/s3/aws4_request"
    key = f"AWS4{credentials.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    nothing, body = hashlib.sha256(b"").hexdigest(), b""
    for chunk in [*chunks, b""]:
        text = "\n".join(("AWS4-HMAC-SHA256-PAYLOAD", when, scope, last, nothing, hashlib.sha256(chunk).hexdigest()))
        last = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
        body += f"{len(chunk):x};chunk-signature={last}\r\n".encode() + chunk + b"\r\n"
    return {**dict(request.headers), "Content-Length": str(len(body))}, body


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
if mode == "revoked":
    for _ in range(2):
        cache = allowed("who has a key", "/vault/a/b", signed("GET", "/vault/a/b", OTHER))
    assert cache == "HIT", cache
    denied("a key that is gone", "/vault/a/b", signed("GET", "/vault/a/b", OWNER))
    denied("a link by a key that is gone", presigned("/vault/a/b", OWNER, 600), {})
    print("done")
    sys.exit()
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


def with_policies_of_the_store():
    """What is public is read by all, and no longer when it is not."""
    everybody = {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::vault/public"}
    one = {"Effect": "Allow", "Principal": {"AWS": [other_principal]}, "Action": "s3:GetObject", "Resource": "arn:aws:s3:::vault/shared"}
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


def with_grants_of_the_gateway():
    """The store's policies are for the gateway's own key; grants say who may."""
    everybody = {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::vault/*"}
    owner.put_bucket_policy(Bucket="vault", Policy=policy(everybody))
    denied("public at the store, anonymous", "/vault/public", {})
    denied("public at the store, another", "/vault/public", signed("GET", "/vault/public", OTHER))
    for _ in range(2):
        cache = allowed("granted", "/vault/shared", signed("GET", "/vault/shared", OTHER))
    assert cache == "HIT", cache
    allowed("granted, as a link", presigned("/vault/shared", OTHER, 60), {})
    for target in (
        "/vault/shared/../secret", "/vault/shared/%2e%2e/secret", "/vault/shared%2f..%2fsecret", "/vault?list-type=2", "/vault?list-type=2&prefix=s",
        "/vault?list-type=2&prefix=shared&prefix=", "/vault/shared?acl&policy", "/vault?policy", "/",
    ):
        denied(f"granted something else, {target}", target, signed("GET", target, OTHER))
    for source in ("/vault/secret", "vault%2Fsecret", "vault/shared/../secret", "/vault//secret", "vault/secret?versionId=null", "vault/shared?x"):
        denied(f"a copy of {source}", "/vault/drop/x", signed("PUT", "/vault/drop/x", OTHER, {"x-amz-copy-source": source}), "PUT")
    denied("a copy as a query", "/vault/drop/x?x-amz-copy-source=vault/secret", signed("PUT", "/vault/drop/x?x-amz-copy-source=vault/secret", OTHER), "PUT")
    status, _, _ = send("PUT", "/vault/drop/x", signed("PUT", "/vault/drop/x", OTHER, {"x-amz-copy-source": "/vault/shared"}))
    assert status == 200, status
    denied("what was written and not granted to read", "/vault/drop/x", signed("GET", "/vault/drop/x", OTHER))
    denied("many deletes", "/vault?delete", signed("POST", "/vault?delete", OTHER), "POST")


def uploads_by_chunks():
    """What is signed by chunks arrives whole or not at all."""
    headers, body = by_chunks("/vault/good", OWNER, [SECRET, SECRET[:9]])
    status, _, said = send("PUT", "/vault/good", headers, body)
    assert status == 200, said
    assert owner.get_object(Bucket="vault", Key="good")["Body"].read() == SECRET + SECRET[:9]
    at = body.index(b"\r\n") + 20
    for what, path, change in (
        ("a byte", "/vault/bad", lambda it: it[:at] + b"X" + it[at + 1 :]),
        ("a signature", "/vault/bad", lambda it: it.replace(it[it.index(b"=") + 1 :][:8], b"00000000", 1)),
        ("the order", "/vault/bad", lambda it: it[it.index(b"9;chunk") :] + it[: it.index(b"9;chunk")]),
        ("a size", "/vault/bad", lambda it: it.replace(b";", b"x", 1)),
    ):
        headers, body = by_chunks(path, OWNER, [SECRET, SECRET[:9]])
        status, _, said = send("PUT", path, headers, change(body))
        print(f"chunks with {what} changed: {status}")
        assert status in (400, 403), f"{what}: {status} {said}"
    headers, body = by_chunks("/vault/bad", OWNER, [SECRET])
    headers["Content-Length"] = str(len(SECRET) + 89 + 2)
    status, _, said = send("PUT", "/vault/bad", headers, body[: len(SECRET) + 89 + 2])
    print(f"chunks without the last: {status}")
    assert status == 400, said
    denied("what was not whole", "/vault/bad", signed("GET", "/vault/bad", OWNER))


if mode.startswith("verify"):
    with_grants_of_the_gateway()
    uploads_by_chunks()
else:
    with_policies_of_the_store()
time.sleep(max(0, 4.5 - (time.monotonic() - begun)))
denied("the owner's short link, expired", short, {})
if mode.endswith("ttl"):
    assert allowed("the owner's link, still good", link, {}) in ("HIT", "REVALIDATED")
owner.delete_object(Bucket="vault", Key="secret")
denied("the owner's link to what is gone", link, {})
print("done")
