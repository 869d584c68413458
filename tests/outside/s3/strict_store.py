"""A store in memory that is strict: each request takes effect at one instant, and an answer is of one version from its head to its last byte.

Why: a store over a directory names the ETag of one version and the length of another once in some ten thousand requests, while both change. What a
gateway makes of that says nothing of the gateway. It lets everybody do anything, and takes its time, so that requests overlap.
Run as `strict_store.py PORT SEED`. It knows one bucket, whatever its name is.
"""

import hashlib
import itertools
import random
import re
import sys
import threading
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

OBJECTS, UPLOADS = {}, {}
LOCK = threading.Lock()
UPLOAD_IDS = itertools.count(1)


class Object:
    """A version."""

    def __init__(self, body, etag=None):
        self.body, self.etag = body, etag or f'"{hashlib.md5(body).hexdigest()}"'
        self.modified = formatdate(usegmt=True)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    # Head and body together.
    wbufsize = 1 << 16
    rng = random.Random(int(sys.argv[2]))

    def log_message(self, *_):
        pass

    def pause(self):
        if self.rng.random() < 0.4:
            time.sleep(self.rng.expovariate(250))

    def do(self):
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        self.query = parse_qs(parts.query, keep_blank_values=True)
        self.key = unquote(parts.path).lstrip("/").partition("/")[2]
        self.pause()
        with LOCK:
            answer = self.act()
        self.pause()
        self.answer(*answer)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do

    def answer(self, status, headers=None, body=b""):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status not in (204, 304):
            self.send_header("Content-Length", len(body))
        self.end_headers()
        if self.command == "HEAD" or status in (204, 304):
            return
        half = self.rng.randrange(len(body) + 1)
        self.wfile.write(body[:half])
        self.wfile.flush()
        self.pause()
        self.wfile.write(body[half:])

    def error(self, status, code):
        return status, {"Content-Type": "application/xml"}, f"<Error><Code>{code}</Code></Error>".encode()

    def act(self):
        """(status, headers, body), and what it changes: at one instant."""
        match self.command, self.key:
            case "GET", "":
                return self.list()
            case ("GET" | "HEAD"), key:
                return self.read(OBJECTS.get(key))
            case "DELETE", key:
                OBJECTS.pop(key, None)
                return 204, {}, b""
            case "POST", "":
                for key in re.findall(r"<Key>(.*?)</Key>", self.body.decode()):
                    OBJECTS.pop(key, None)
                return 200, {}, b"<DeleteResult/>"
            case "POST", key if "uploads" in self.query:
                upload = f"upload-{next(UPLOAD_IDS)}"
                UPLOADS[upload] = {}
                return 200, {}, f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>".encode()
            case "POST", key:
                parts = [part for _, part in sorted(UPLOADS.pop(self.query["uploadId"][0]).items())]
                sums = b"".join(hashlib.md5(part).digest() for part in parts)
                return self.put(key, Object(b"".join(parts), f'"{hashlib.md5(sums).hexdigest()}-{len(parts)}"'))
            case "PUT", key if "uploadId" in self.query:
                UPLOADS[self.query["uploadId"][0]][int(self.query["partNumber"][0])] = self.body
                return 200, {"ETag": Object(self.body).etag}, b""
            case "PUT", key if "x-amz-copy-source" in self.headers:
                source = OBJECTS.get(unquote(self.headers["x-amz-copy-source"]).lstrip("/").partition("/")[2])
                return self.put(key, Object(source.body)) if source else self.error(404, "NoSuchKey")
            case "PUT", key:
                return self.put(key, Object(self.body))
        return self.error(405, "MethodNotAllowed")

    def put(self, key, value):
        OBJECTS[key] = value
        return 200, {"ETag": value.etag}, f"<Result><ETag>{escape(value.etag)}</ETag></Result>".encode()

    def list(self):
        row = "<Contents><Key>{}</Key><ETag>{}</ETag></Contents>"
        rows = "".join(row.format(escape(key), escape(value.etag)) for key, value in OBJECTS.items())
        return 200, {"Content-Type": "application/xml"}, f"<ListBucketResult>{rows}</ListBucketResult>".encode()

    def read(self, value):
        if value is None:
            return self.error(404, "NoSuchKey")
        headers = {"ETag": value.etag, "Last-Modified": value.modified, "Accept-Ranges": "bytes", "Content-Type": "x/y"}
        size = len(value.body)
        if self.headers.get("If-Match", value.etag) != value.etag:
            return self.error(412, "PreconditionFailed")
        if self.headers.get("If-None-Match") == value.etag:
            return 304, headers, b""
        if self.command == "HEAD" or "Range" not in self.headers:
            return 200, headers, value.body
        first, last = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers["Range"]).groups()
        first, last = (max(0, size - int(last)), size - 1) if first == "" else (int(first), min(int(last or size), size - 1))
        if first > last:
            return self.error(416, "InvalidRange")
        return 206, {**headers, "Content-Range": f"bytes {first}-{last}/{size}"}, value.body[first : last + 1]


if __name__ == "__main__":
    ThreadingHTTPServer.daemon_threads = True
    ThreadingHTTPServer.request_queue_size = 128
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
