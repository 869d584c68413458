"""Uploads through a gateway that keeps them on their way: run with a step, the gateway's port, the store's, and the keys of the owner and of another
user, by the clients' own python."""

import base64
import hashlib
import http.client
import io
import socket
import sys
import zlib

import boto3
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.client import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

step, gateway_port, store_port, key, secret, other_key, other_secret = sys.argv[1:8]
MIB = 1 << 20
STORED, AROUND = "forebay; fwd=method; stored", "forebay; fwd=bypass; detail=change"
# Of one answer, or of the gateway.
OWN = {"date", "x-amz-request-id", "x-amz-id-2", "x-cache", "cache-status", "age", "server", "connection", "keep-alive"}
OLD = b"what was there before " * 50_000


def client(port, key=key, secret=secret):
    config = Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0})
    return boto3.client(
        "s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1", aws_access_key_id=key, aws_secret_access_key=secret, config=config
    )


gateway, store = client(gateway_port), client(store_port)


def check(condition, what):
    if not condition:
        sys.exit(f"failed: {what}")


def headers_of(answer):
    return answer["ResponseMetadata"]["HTTPHeaders"]


def told(answer):
    return headers_of(answer).get("cache-status")


def content(length):
    """Bytes that are others at each place."""
    block = hashlib.sha512(str(length).encode()).digest() * 1024
    return b"".join(zlib.crc32(at.to_bytes(8, "big")).to_bytes(4, "big") + block[4:] for at in range(length // len(block) + 1))[:length]


def read_twice(name, body, what, **extra):
    """What is read is what the store tells; large objects come from the cache at the first read, all at the second."""
    direct = store.get_object(Bucket="bucket", Key=name, **extra)
    check(direct["Body"].read() == body, f"{what}: the store has other bytes")
    for nth in range(2):
        answer = gateway.get_object(Bucket="bucket", Key=name, **extra)
        headers = headers_of(answer)
        check(answer["Body"].read() == body, f"{what}: the gateway has other bytes")
        same = [{name: value for name, value in it.items() if name not in OWN} for it in (headers, headers_of(direct))]
        check(same[0] == same[1], f"{what}, read {nth}: {same[0]} and not {same[1]}")
        expected = ("HIT",) if nth else ("MISS",) if len(body) <= 128 << 10 else ("HIT",)
        check(headers["x-cache"] in (expected if body else ("HIT", "MISS")), f"{what}, read {nth}: {headers['x-cache']}")


class Signer(S3SigV4Auth):
    """Signs what it is told of the body."""

    def __init__(self, payload):
        super().__init__(Credentials(key, secret), "s3", "us-east-1")
        self.told = payload

    def payload(self, request):
        return self.told


def signed(name, headers, payload="UNSIGNED-PAYLOAD"):
    request = AWSRequest(method="PUT", url=f"http://127.0.0.1:{gateway_port}/bucket/{name}", headers=headers)
    Signer(payload).add_auth(request)
    return dict(request.headers)


def send(name, headers, body):
    connection = http.client.HTTPConnection("127.0.0.1", int(gateway_port), timeout=60)
    connection.request("PUT", f"/bucket/{name}", body=body, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, answer.getheader("cache-status"), text


def chunked(name, body, checksum=None, framing=lambda text: text):
    """An upload in unsigned chunks with a checksum behind them, as SDKs send it over TLS."""
    checksum = base64.b64encode((zlib.crc32(body) if checksum is None else checksum).to_bytes(4, "big")).decode()
    out = io.BytesIO()
    for at in range(0, len(body), 64 << 10):
        chunk = body[at : at + (64 << 10)]
        out.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
    out.write(f"0\r\nx-amz-checksum-crc32:{checksum}\r\n\r\n".encode())
    text = framing(out.getvalue())
    headers = {
        "x-amz-decoded-content-length": str(len(body)),
        "content-encoding": "aws-chunked",
        "x-amz-trailer": "x-amz-checksum-crc32",
    }
    return send(name, signed(name, headers, "STREAMING-UNSIGNED-PAYLOAD-TRAILER"), text)


def until_all_is_kept(name, upload):
    """What finds no room at the moment is left out: five times are enough."""
    for attempt in range(5):
        upload()
        if headers_of(gateway.get_object(Bucket="bucket", Key=name))["x-cache"] == "HIT":
            return
    check(False, f"of {name} not all is kept, five times")


def by_parts(name, bodies):
    def upload():
        upload, parts = gateway.create_multipart_upload(Bucket="bucket", Key=name)["UploadId"], []
        # The last one comes first.
        for number, body in reversed(list(enumerate(bodies, 1))):
            part = gateway.upload_part(Bucket="bucket", Key=name, UploadId=upload, PartNumber=number, Body=body)
            check(told(part) == STORED, f"a part: {told(part)}")
            parts.insert(0, {"PartNumber": number, "ETag": part["ETag"]})
        gateway.complete_multipart_upload(Bucket="bucket", Key=name, UploadId=upload, MultipartUpload={"Parts": parts})

    until_all_is_kept(name, upload)
    read_twice(name, b"".join(bodies), "by parts", ChecksumMode="ENABLED")


def uploads():
    gateway.create_bucket(Bucket="bucket")
    gateway.create_bucket(Bucket="other")
    for length in (0, 1, 5000, 130 << 10, 5 * MIB - 1, 20 * MIB):
        name, body = f"o{length}", content(length)
        extra = {"ContentType": "text/x", "Metadata": {"a": "b"}, "CacheControl": "max-age=5", "ContentDisposition": "inline"}

        def put():
            answer = gateway.put_object(Bucket="bucket", Key=name, Body=body, **extra)
            check(told(answer) == STORED, f"{length}: {told(answer)}")

        if length <= MIB:
            put()
        else:
            until_all_is_kept(name, put)
        read_twice(name, body, f"{length} bytes", ChecksumMode="ENABLED")
    body = content(3 * MIB)
    status, status_told, text = chunked("chunked", body)
    check((status, status_told) == (200, STORED), f"in chunks: {status} {status_told} {text}")
    read_twice("chunked", body, "in chunks", ChecksumMode="ENABLED")
    answer = gateway.get_object(Bucket="bucket", Key="chunked", Range="bytes=70000-70009")
    check(answer["Body"].read() == body[70000:70010], "a part")
    # A change past the gateway is seen at once.
    store.put_object(Bucket="bucket", Key="chunked", Body=OLD)
    check(gateway.get_object(Bucket="bucket", Key="chunked")["Body"].read() == OLD, "changed past the gateway")
    # Versions.
    gateway.put_bucket_versioning(Bucket="bucket", VersioningConfiguration={"Status": "Enabled"})
    first, second = content(MIB), content(MIB + 1)
    version = gateway.put_object(Bucket="bucket", Key="versions", Body=first)["VersionId"]
    answer = gateway.put_object(Bucket="bucket", Key="versions", Body=second)
    check(told(answer) == STORED, f"a version: {told(answer)}")
    read_twice("versions", second, "a version", ChecksumMode="ENABLED")
    read_twice("versions", first, "an older version", VersionId=version, ChecksumMode="ENABLED")
    # By parts, and where no policy says so.
    by_parts("parts", [content(5 * MIB), content(6 * MIB), content(12_345)])
    # As every client does it: several parts at one time.
    body = content(33 * MIB + 7)
    until_all_is_kept("file", lambda: gateway.upload_fileobj(io.BytesIO(body), "bucket", "file"))
    read_twice("file", body, "a file", ChecksumMode="ENABLED")
    check(told(gateway.put_object(Bucket="other", Key="o", Body=b"x")) == AROUND, "no policy")
    # A request chooses itself, whether it signs that or not.
    for event in ("before-sign", "before-send"):
        chooser = client(gateway_port)
        chooser.meta.events.register(f"{event}.s3.PutObject", lambda request, **_: request.headers.__setitem__("x-forebay-write", "through"))
        check(told(chooser.put_object(Bucket="other", Key=event, Body=content(MIB))) == STORED, f"chosen {event}")


def still_old(what):
    for _ in range(2):
        answer = gateway.get_object(Bucket="bucket", Key="old")
        body = answer["Body"].read()
        check(body == OLD, f"{what}: {len(body)} other bytes are read: {headers_of(answer)}")
    check(store.get_object(Bucket="bucket", Key="old")["Body"].read() == OLD, f"{what}: the store took it")


def refused():
    check(told(gateway.put_object(Bucket="bucket", Key="old", Body=OLD)) == STORED, "the old one")
    body = content(3 * MIB)
    try:
        client(gateway_port, other_key, other_secret).put_object(Bucket="bucket", Key="old", Body=body)
        check(False, "somebody else wrote")
    except ClientError as error:
        # A store that closes before it has read the body may not be heard.
        check(error.response["Error"]["Code"] in ("AccessDenied", "ServiceUnavailable"), f"somebody else: {error}")
    still_old("somebody else")
    wrong = base64.b64encode(hashlib.md5(b"x").digest()).decode()
    status, _, text = send("old", signed("old", {"content-md5": wrong}), body)
    check(status == 400, f"a wrong MD5: {status} {text}")
    still_old("a wrong MD5")
    status, _, text = chunked("old", body, checksum=7)
    check(status == 400, f"a wrong checksum behind the chunks: {status} {text}")
    still_old("a wrong checksum")
    status, said, text = chunked("old", body, framing=lambda text: text.replace(b"10000\r\n", b"1000g\r\n", 1))
    check(status >= 400 and said != STORED, f"no number: {status} {said} {text}")
    still_old("no number")
    half("old", body).close()
    still_old("broken off")


def half(name, body):
    """A connection on which half of an upload is sent. Of one with an unsigned body versitygw keeps the half, asked directly too."""
    headers = signed(name, {"content-length": str(len(body))}, hashlib.sha256(body).hexdigest())
    connection = socket.create_connection(("127.0.0.1", int(gateway_port)), 60)
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    connection.sendall(f"PUT /bucket/{name} HTTP/1.1\r\nHost: 127.0.0.1:{gateway_port}\r\n{lines}\r\n".encode())
    connection.sendall(body[: len(body) // 2])
    return connection


def broken():
    connection = half("old", content(3 * MIB))
    print("half is sent", flush=True)
    print(connection.recv(4096).decode(), flush=True)


def after():
    still_old("the store was away")
    body = content(2 * MIB)
    check(told(gateway.put_object(Bucket="bucket", Key="old", Body=body)) == STORED, "after the store was away")
    read_twice("old", body, "after the store was away", ChecksumMode="ENABLED")


{"uploads": uploads, "refused": refused, "broken": broken, "after": after}[step]()
print("done")
