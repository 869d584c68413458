"""Several clients of a few keys, through a gateway and past it, and what they saw of it.

Run as `history.py GATEWAY STORE BUCKET SECONDS SEED TTL_S FILE` by the clients' own python; "-" for GATEWAY: the store alone. Anybody may read in
the bucket. Every 64 bytes of a body say which version they are of and where they belong, so that a mixed or misplaced body shows in any range. What was
seen goes to FILE, and whether it is what a strict store would have shown (see strict.py) to standard output, as one object.
"""

import base64
import collections
import hashlib
import http.client
import itertools
import json
import os
import random
import re
import sys
import threading
import time

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from strict import Operation, stale, violations

KEYS = [f"key {at}/+%" for at in range(4)]
CLIENTS = 6
RECORD = 64
PART_BYTES = 5 << 20
SIZES = [4096, 9000, 16384, 16385, 65536, 100_000, 300_001, 1_200_000]
NUMBERS = itertools.count(1)
OWNER = Credentials(os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])


def content(number, size):
    """The bytes of a version."""
    head = b"%016x %016x " % (number, size)
    records = (b"%s%014x %014x\n" % (head, number ^ at, at) for at in range(-(-size // RECORD)))
    return b"".join(records)[:size]


class Versions:
    """What was written, by number and by ETag."""

    def __init__(self):
        self.sizes, self.numbers, self.bodies = {}, {}, collections.OrderedDict()
        self.lock = threading.Lock()

    def new(self, size, parts=None):
        """(number, parts): parts of `size` together, written as one, or as a multipart upload."""
        number = next(NUMBERS)
        body = content(number, size)
        parts = [body] if parts is None else [body[at : at + parts] for at in range(0, size, parts)]
        sums = [hashlib.md5(part) for part in parts]
        whole = hashlib.md5(b"".join(it.digest() for it in sums)).hexdigest() + f"-{len(parts)}"
        with self.lock:
            self.sizes[number] = size
            # As one it has the other ETag: the copy of a multipart upload, for instance.
            self.numbers[whole] = self.numbers[hashlib.md5(body).hexdigest()] = number
        return number, parts

    def number(self, etag):
        with self.lock:
            return self.numbers.get(etag.strip('"'), -1)

    def body(self, number):
        with self.lock:
            if number not in self.bodies:
                self.bodies[number] = content(number, self.sizes[number])
                while len(self.bodies) > 16:
                    self.bodies.popitem(last=False)
            return self.bodies[number]


class Recorder:
    """What happened, by key, and what was wrong in itself."""

    def __init__(self):
        self.versions = Versions()
        self.operations, self.wrong, self.counts = [], [], collections.Counter()

    def add(self, *fields, **more):
        self.operations.append(Operation(*fields, **more))


class Client:
    """One at a time; it draws what to do."""

    def __init__(self, recorder, addresses, bucket, seed):
        self.recorder, self.bucket, self.rng = recorder, bucket, random.Random(seed)
        self.addresses, self.connections, self.seen = addresses, {}, {}

    def ask(self, through, method, target, headers=None, body=None):
        """(status, headers, body, begin, end); status 0: no answer, or none that is whole."""
        headers = dict(headers or {})
        # Reads without a name are believed for a while, if any are.
        if method not in ("GET", "HEAD") or "?" in target or self.rng.random() < 0.3:
            request = AWSRequest(method=method, url=f"http://{self.addresses[through]}{target}", headers=headers, data=body)
            S3SigV4Auth(OWNER, "s3", "us-east-1").add_auth(request)
            headers = dict(request.headers)
        begin = time.monotonic()
        try:
            if through not in self.connections:
                self.connections[through] = http.client.HTTPConnection(self.addresses[through], timeout=20)
            connection = self.connections[through]
            connection.request(method, target, body=body, headers=headers)
            answer = connection.getresponse()
            found = answer.status, answer.headers, answer.read()
        except http.client.IncompleteRead as error:
            self.connections.pop(through).close()
            return -1, answer.headers, error.partial, begin, time.monotonic()
        except (OSError, http.client.HTTPException):
            self.connections.pop(through).close()
            return 0, {}, b"", begin, time.monotonic()
        return *found, begin, time.monotonic()

    def target(self, key):
        return f"/{self.bucket}/" + "".join(f"%{byte:02X}" if chr(byte) in " +%" else chr(byte) for byte in key.encode())

    def step(self):
        through, key = self.rng.choice(list(self.addresses)), self.rng.choice(KEYS)
        action = self.rng.choices(
            [self.get, self.head, self.put, self.delete, self.copy, self.multipart, self.delete_many, self.list],
            [60, 12, 12, 3, 3, 2, 1, 7],
        )[0]
        action(through, key)

    def wrote(self, through, key, version, status, begin, end, what):
        """Not if it was refused. Without an answer of the store it may still be done."""
        if status not in (400, 403, 404, 409, 412):
            end = None if status in (0, -1, 503) else end
            self.recorder.add(key, True, version, begin, end, f"{what} {status}", through=through, failed=status >= 500)
        self.recorder.counts[f"{what} {status}"] += 1

    def saw(self, through, key, version, begin, end, what):
        if version == -1:
            self.recorder.wrong.append(f"{begin:.4f}..{end:.4f} {key}: {what}: nobody wrote that")
        else:
            self.recorder.add(key, False, version, begin, end, what, through=through)

    def get(self, through, key):
        headers, size = {}, self.rng.choice(SIZES)
        match self.rng.randrange(6):
            case 0 | 1:
                first = self.rng.randrange(size)
                headers["Range"] = f"bytes={first}-{first + self.rng.randrange(128, 200_000)}"
            case 2:
                headers["Range"] = f"bytes=-{self.rng.randrange(128, 100_000)}"
            case 3 if key in self.seen:
                headers["If-None-Match"] = self.seen[key]
        status, told, body, begin, end = self.ask(through, "GET", self.target(key), headers)
        what = f"get {headers.get('Range', '')} {status} {told.get('X-Cache', '')}".replace("  ", " ")
        self.recorder.counts[f"get {status} {told.get('X-Cache', 'direct')}"] += 1
        if status == 404:
            self.saw(through, key, 0, begin, end, what)
        elif status == 304:
            self.saw(through, key, self.recorder.versions.number(headers["If-None-Match"]), begin, end, what)
        elif status in (200, 206, -1) and "ETag" in told:
            self.seen[key] = told["ETag"]
            version = self.recorder.versions.number(told["ETag"])
            wrong = self.wrong(version, told, body, status == -1)
            if wrong:
                self.recorder.wrong.append(f"{begin:.4f}..{end:.4f} {key} = {version}: {what}: {wrong}")
            if status != -1:
                self.saw(through, key, version, begin, end, what)

    def wrong(self, version, told, body, is_torn):
        """How the body differs from that of the version that its ETag is of."""
        if version == -1:
            return "nobody wrote that ETag"
        whole = self.recorder.versions.body(version)
        first = 0
        if "Content-Range" in told:
            first, last, size = map(int, re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", told["Content-Range"]).groups())
            if size != len(whole) or (not is_torn and len(body) != last + 1 - first):
                return f"{told['Content-Range']}, {len(body)} bytes, of {len(whole)}"
        elif not is_torn and len(body) != len(whole):
            return f"{len(body)} bytes of {len(whole)}"
        if body == whole[first : first + len(body)]:
            return None
        at = next(at for at in range(len(body)) if body[at] != whole[first + at])
        return f"from byte {first + at} on: {body[at - at % 64 : at - at % 64 + 64]!r}"

    def head(self, through, key):
        status, told, _, begin, end = self.ask(through, "HEAD", self.target(key))
        self.recorder.counts[f"head {status} {told.get('X-Cache', 'direct')}"] += 1
        if status == 404:
            self.saw(through, key, 0, begin, end, "head 404")
        elif status == 200:
            version = self.recorder.versions.number(told["ETag"])
            if version != -1 and int(told["Content-Length"]) != self.recorder.versions.sizes[version]:
                self.recorder.wrong.append(f"{begin:.4f} head {key} = {version}: {told['Content-Length']} bytes")
            self.saw(through, key, version, begin, end, f"head {told.get('X-Cache', '')}")

    def put(self, through, key):
        version, parts = self.recorder.versions.new(self.rng.choice(SIZES))
        status, _, _, begin, end = self.ask(through, "PUT", self.target(key), body=parts[0])
        self.wrote(through, key, version, status, begin, end, "put")

    def delete(self, through, key):
        status, _, _, begin, end = self.ask(through, "DELETE", self.target(key))
        self.wrote(through, key, 0, status, begin, end, "delete")

    def delete_many(self, through, _):
        keys = self.rng.sample(KEYS, 2)
        body = "<Delete>" + "".join(f"<Object><Key>{key}</Key></Object>" for key in keys) + "</Delete>"
        sum = {"Content-MD5": base64.b64encode(hashlib.md5(body.encode()).digest()).decode()}
        status, _, _, begin, end = self.ask(through, "POST", f"/{self.bucket}?delete", sum, body.encode())
        for key in keys:
            self.wrote(through, key, 0, status, begin, end, "delete-many")

    def copy(self, through, source):
        key = self.rng.choice([key for key in KEYS if key != source])
        headers = {"x-amz-copy-source": self.target(source)}
        status, _, body, begin, end = self.ask(through, "PUT", self.target(key), headers)
        etag = re.search(rb"<ETag>(?:&#34;|&quot;|\")?([0-9a-f-]+)", body)
        if status == 404:
            self.saw(through, source, 0, begin, end, "copied from")
        elif status == 200 and etag:
            version = self.recorder.versions.number(etag[1].decode())
            self.saw(through, source, version, begin, end, "copied from")
            self.wrote(through, key, version, status, begin, end, "copy")
        else:
            # A copy that failed at the end may be one of anything. A store says so with a 200, too.
            self.wrote(through, key, None, 500 if status == 200 else status, begin, end, "copy")

    def multipart(self, through, key):
        version, parts = self.recorder.versions.new(PART_BYTES + self.rng.choice(SIZES), PART_BYTES)
        target = self.target(key)
        status, _, body, _, _ = self.ask(through, "POST", f"{target}?uploads")
        if status != 200:
            return
        upload = re.search(rb"<UploadId>([^<]+)", body)[1].decode()
        tags = []
        for number, part in enumerate(parts, 1):
            through = self.rng.choice(list(self.addresses))
            status, told, _, _, _ = self.ask(through, "PUT", f"{target}?partNumber={number}&uploadId={upload}", body=part)
            if status != 200:
                return
            tags.append(told["ETag"])
        row = "<Part><PartNumber>{}</PartNumber><ETag>{}</ETag></Part>"
        body = "".join(row.format(number, tag) for number, tag in enumerate(tags, 1))
        body = f"<CompleteMultipartUpload>{body}</CompleteMultipartUpload>".encode()
        status, _, answer, begin, end = self.ask(through, "POST", f"{target}?uploadId={upload}", body=body)
        self.wrote(through, key, version, 500 if b"<Error>" in answer else status, begin, end, "multipart")

    def list(self, through, _):
        status, _, body, begin, end = self.ask(through, "GET", f"/{self.bucket}?list-type=2")
        if status != 200:
            return
        rows = re.findall(r"<Contents>(.*?)</Contents>", body.decode(), re.S)
        field = lambda row, name: re.search(f"<{name}>(.*?)</{name}>", row)[1]
        listed = {field(row, "Key"): field(row, "ETag").replace("&#34;", "").replace("&quot;", "") for row in rows}
        for key in KEYS:
            version = self.recorder.versions.number(listed[key]) if key in listed else 0
            self.saw(through, key, version, begin, end, "listed")
        self.recorder.counts["list"] += 1


def main(gateway, store, bucket, seconds, seed, ttl_s, file):
    recorder = Recorder()
    addresses = {False: store} if gateway == "-" else {True: gateway, False: store}
    janitor = Client(recorder, {False: store}, bucket, seed)
    for key in KEYS:
        janitor.delete(False, key)
    until, died = time.monotonic() + float(seconds), []

    def work(number):
        client = Client(recorder, addresses, bucket, f"{seed} {number}")
        try:
            while time.monotonic() < until:
                client.step()
        except BaseException as error:
            died.append(repr(error))
            raise

    threads = [threading.Thread(target=work, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = []
    for key in KEYS:
        of_key = [it for it in recorder.operations if it.key == key]
        found += violations(of_key) if float(ttl_s) == 0 else stale(of_key, float(ttl_s))
    with open(file, "w", encoding="utf-8") as out:
        out.write("".join(f"{it}\n" for it in sorted(recorder.operations, key=lambda it: it.begin)))
    print(json.dumps({
        "operations": len(recorder.operations), "counts": dict(sorted(recorder.counts.items())), "wrong": recorder.wrong, "died": died,
        "violations": [str(it) for it in found], "through": sum(it.through for it in recorder.operations),
    }))


if __name__ == "__main__":
    main(*sys.argv[1:])
