"""What boto3 sees of a store, as JSON: run with the endpoint and a bucket's name, by the clients' own python.

Everything that a store says is in it but for times, ids and addresses, so that two transcripts can be compared: of the store, and of the store
through a gateway. Each read is done three times. What follows the bucket's name is what the store lacks and is left out: `versions`, or `empty-tails`,
the last bytes of an object that has none.
"""

import collections
import hashlib
import json
import random
import sys

import boto3
from botocore.client import Config
from botocore.exceptions import ClientError

endpoint, bucket = sys.argv[1:3]
lacks = set(sys.argv[3:])
s3 = boto3.client("s3", endpoint_url=endpoint, config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0}))
rng = random.Random(1)
said = []
# How often the gateway said what of where bytes came from.
cache = collections.Counter()
IGNORED = {
    "x-amz-request-id", "x-amz-id-2", "date", "last-modified", "x-cache", "cache-status", "age", "location", "x-amz-version-id",
    "connection", "server", "transfer-encoding",
}


def blob(length):
    return rng.randbytes(length)


def told(value):
    """The value without what differs from one time to the next."""
    if isinstance(value, dict):
        skipped = {"ResponseMetadata", "LastModified", "UploadId", "VersionId", "Initiated", "CopySourceVersionId", "DeleteMarkerVersionId", "Location"}
        return {key: told(inner) for key, inner in sorted(value.items()) if key not in skipped}
    if isinstance(value, (list, tuple)):
        return [told(inner) for inner in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(type(value).__name__)


def do(name, **arguments):
    call = f"{name} {told({key: value if not isinstance(value, bytes) else len(value) for key, value in arguments.items()})}"
    try:
        answer = getattr(s3, name)(**arguments)
    except ClientError as error:
        said.append([call, error.response["Error"].get("Code"), error.response["ResponseMetadata"]["HTTPStatusCode"]])
        return None
    body = answer.pop("Body").read() if "Body" in answer else None
    meta = answer["ResponseMetadata"]
    cache[meta["HTTPHeaders"].get("x-cache", "")] += 1
    headers = {key: value for key, value in sorted(meta["HTTPHeaders"].items()) if key not in IGNORED}
    if name == "complete_multipart_upload":
        # The store's own address is in it.
        headers.pop("content-length", None)
    what = [call, meta["HTTPStatusCode"], told(answer), headers]
    if body is not None:
        what.append([len(body), hashlib.sha256(body).hexdigest()])
    said.append(what)
    return answer


def look(key, **more):
    for _ in range(3):
        do("get_object", Bucket=bucket, Key=key, **more)
    do("head_object", Bucket=bucket, Key=key, **more)


def whole_objects():
    for length in (0, 1, 4095, 4096, 4097, 16384, 16385, 65536, 1_000_003):
        key = f"whole/{length}"
        do("put_object", Bucket=bucket, Key=key, Body=blob(length), ContentType="text/x", Metadata={"one": "1"})
        look(key)
        for text in ("bytes=0-0", "bytes=-1", "bytes=1-", "bytes=0-4095", "bytes=5000-70000", "bytes=9999999-", "bytes=3-1", "lines=1-2", "bytes=0-1,3-4"):
            if length or text != "bytes=-1" or "empty-tails" not in lacks:
                look(key, Range=text)


def keys_of_all_kinds():
    for key in ("a b", "a+b", "ä/ö/日本", "a//b", "/lead", "q?x=1&y", "per%20cent", "~!*'()", "#;:@$=,", "trail/", "dots/.hidden"):
        do("put_object", Bucket=bucket, Key=f"keys/{key}", Body=key.encode())
        look(f"keys/{key}")
    do("list_objects_v2", Bucket=bucket, Prefix="keys/")


def conditions():
    etag = do("put_object", Bucket=bucket, Key="cond", Body=blob(70_000))["ETag"]
    look("cond")
    for more in (
        {"IfMatch": etag}, {"IfMatch": '"no"'}, {"IfNoneMatch": etag}, {"IfNoneMatch": '"no"'}, {"IfMatch": etag, "Range": "bytes=1-3"},
        {"IfModifiedSince": "2100-01-01"}, {"IfModifiedSince": "2000-01-01"}, {"IfUnmodifiedSince": "2000-01-01"}, {"IfUnmodifiedSince": "2100-01-01"},
    ):
        look("cond", **more)


def overwrites():
    for round in range(5):
        do("put_object", Bucket=bucket, Key="over", Body=blob(20_000 + round), ContentType=f"text/{round}")
        look("over")
    do("delete_object", Bucket=bucket, Key="over")
    look("over")
    do("copy_object", Bucket=bucket, Key="over", CopySource=f"{bucket}/cond")
    look("over")
    do("copy_object", Bucket=bucket, Key="over", CopySource=f"{bucket}/over", MetadataDirective="REPLACE", Metadata={"two": "2"}, ContentType="text/z")
    look("over")
    do("put_object_tagging", Bucket=bucket, Key="over", Tagging={"TagSet": [{"Key": "a", "Value": "b"}]})
    look("over")
    do("delete_objects", Bucket=bucket, Delete={"Objects": [{"Key": "over"}, {"Key": "none"}]})
    look("over")


def multipart():
    upload = s3.create_multipart_upload(Bucket=bucket, Key="parts", ContentType="text/parts")["UploadId"]
    parts = []
    for number in (1, 2, 3):
        length = 5 << 20 if number < 3 else 12_345
        answer = do("upload_part", Bucket=bucket, Key="parts", PartNumber=number, UploadId=upload, Body=blob(length))
        parts.append({"PartNumber": number, "ETag": answer["ETag"]})
    look("parts")
    do("complete_multipart_upload", Bucket=bucket, Key="parts", UploadId=upload, MultipartUpload={"Parts": parts})
    look("parts")
    look("parts", Range="bytes=5242870-5242890")
    for number in (1, 2, 3, 4):
        look("parts", PartNumber=number)
        look("parts", PartNumber=number, ChecksumMode="ENABLED")
    look("parts", PartNumber=2, Range="bytes=0-9")


def checksums():
    for algorithm in ("CRC32", "SHA256", "CRC64NVME"):
        key = f"sum/{algorithm}"
        try:
            do("put_object", Bucket=bucket, Key=key, Body=blob(30_000), ChecksumAlgorithm=algorithm)
        except Exception as error:  # A client without that algorithm's library says so the same way each time.
            said.append([key, type(error).__name__])
        look(key)
        look(key, ChecksumMode="ENABLED")
        look(key, Range="bytes=100-200")


def answers_as_asked():
    do("put_object", Bucket=bucket, Key="asked", Body=blob(9_000))
    look("asked")
    look("asked", ResponseContentType="text/asked", ResponseContentDisposition='attachment; filename="x"')
    look("asked")


def versions():
    do("put_bucket_versioning", Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    ids = [do("put_object", Bucket=bucket, Key="vers", Body=blob(30_000 + at)).get("VersionId") for at in range(3)]
    look("vers")
    for version in ids:
        look("vers", VersionId=version)
    do("delete_object", Bucket=bucket, Key="vers")
    look("vers")
    look("vers", VersionId=ids[1])
    do("delete_object", Bucket=bucket, Key="vers", VersionId=ids[1])
    look("vers", VersionId=ids[1])


s3.create_bucket(Bucket=bucket)
for part in (whole_objects, keys_of_all_kinds, conditions, overwrites, multipart, checksums, answers_as_asked, versions):
    if part.__name__ not in lacks:
        part()
json.dump({"said": said, "cache": cache}, sys.stdout)
