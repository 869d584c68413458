"""What is measured: the gateway, other caches of HTTP, and the store that all of them stand before."""

import functools
import json
import os
from pathlib import Path

from measure.hosts import Here
from measure.setting import example
from rig import GIB, MIB, check, eventually, run
from rig.server import free_port, listens

LARGE_BYTES, LARGE_COUNT = 16 * MIB, 64
SMALL_BYTES, SMALL_COUNT = 4096, 1000
CLIENTS = 8
TICKS = os.sysconf("SC_CLK_TCK")

NGINX = """
{user}
worker_processes 2; daemon off; pid {directory}/nginx.pid; error_log {directory}/error.log;
events {{ worker_connections 4096; }}
http {{
    access_log off; sendfile on; tcp_nopush on; tcp_nodelay on; keepalive_requests 1000000; keepalive_timeout 600;
    client_body_temp_path {directory}/body; proxy_temp_path {directory}/proxy; fastcgi_temp_path {directory}/f; uwsgi_temp_path {directory}/u;
    scgi_temp_path {directory}/s;
    {http}
}}
"""
ORIGIN = """
    log_format sent '$status $body_bytes_sent';
    server {{ listen {address}:{port}; root {root}; access_log {log}; }}
"""
CACHE = """
    proxy_cache_path {directory}/cache levels=1:2 keys_zone=c:16m max_size=4g inactive=1h use_temp_path=off;
    proxy_http_version 1.1; proxy_set_header Connection ""; proxy_cache c; proxy_cache_valid 200 206 1h;
    server {{
        listen 127.0.0.1:{port};
        location /large/ {{ slice 1m; proxy_cache_key $uri$slice_range; proxy_set_header Range $slice_range; proxy_pass http://127.0.0.1:{store}; }}
        location /small/ {{ proxy_pass http://127.0.0.1:{store}; }}
    }}
"""
VCL = """vcl 4.1; backend default {{ .host = "127.0.0.1"; .port = "{store}"; }} sub vcl_backend_response {{ set beresp.ttl = 1h; }}"""


HERE = Here()


class Served:
    """A server: where it listens, and what it costs."""

    def __init__(self, process, port, host=HERE):
        self.process, self.port, self.address = process, port, f"{host.address}:{port}"
        eventually(lambda: self._listens(host), f"{process.argv[0]} listens", 20)

    def _listens(self, host):
        check(self.process.alive(), f"{self.process.argv[0]} ended: {self.process.tail()}")
        return listens(self.port, host.address)

    def cpu_seconds(self):
        return sum(map(_cpu_seconds, _family(self.process.pid)))


def _family(pid):
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in _family(int(child)))]


def _cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def nginx(rig, name, http, host=HERE, **values):
    directory, port = rig.path(name), free_port()
    directory.mkdir()
    text = http.format(directory=directory, address=host.address, port=port, **values)
    # The directories of a test are its own user's.
    user = "user root;" if os.geteuid() == 0 else ""
    rig.path(f"{name}.conf").write_text(NGINX.format(directory=directory, http=text, user=user))
    words = host.words("nginx", "-c", rig.path(f"{name}.conf"), "-p", directory)
    return Served(rig.start(*words, name=name), port, host)


def origin(rig, host=HERE, log=None):
    """Files, as a public bucket has them: with ETags, ranges and 304. `log`: a file to tell status and bytes of each answer in."""
    root = rig.path("bucket")
    for kind, length, count in (("large", LARGE_BYTES, LARGE_COUNT), ("small", SMALL_BYTES, SMALL_COUNT)):
        (root / kind).mkdir(parents=True)
        for at in range(count):
            (root / kind / str(at)).write_bytes(os.urandom(length))
    return nginx(rig, "origin", ORIGIN, host, root=root, log=f"{log} sent" if log else "off")


def nginx_cache(rig, store):
    return nginx(rig, "nginx-cache", CACHE, store=store.port)


def varnish(rig, store):
    port = free_port()
    rig.path("vcl").write_text(VCL.format(store=store.port))
    argv = ["varnishd", "-j", "none", "-F", "-a", f"127.0.0.1:{port}", "-f", rig.path("vcl"), "-s", "malloc,3g", "-n", rig.path("varnish")]
    return Served(rig.start(*argv, name="varnish"), port)


def gateway(rig, store, name="forebay", memory="2GiB", **keys):
    port = free_port()
    s3 = {"listen": f"127.0.0.1:{port}", "backend": f"http://{store.address}", **keys}
    forebay = rig.forebay({}, name=name, s3=s3, cache={"disk": None, "disk_size": None, "sparse": None, "memory": memory})
    return Served(forebay.process, port)


def committed(rig, store, memory_bytes=2 * GIB, **keys):
    """The same, when all its memory is committed: that is no cost of a hit or a miss."""
    served = gateway(rig, store, memory=f"{memory_bytes // MIB}MiB", **keys)
    resident = served.process.resident_bytes
    eventually(lambda: resident() > memory_bytes * 0.9, "the gateway's memory is committed", 60, pause=0.2)
    return served


def targets(rig, kind):
    count = LARGE_COUNT if kind == "large" else SMALL_COUNT
    path = rig.path(f"targets-{kind}")
    path.write_text("".join(f"/{kind}/{at}\n" for at in range(count)))
    return path


def load(served, targets, clients, requests, length, header=None):
    """What a load of GETs got, and what it cost the server: bytes/s, requests/s, CPU ms a GiB, requests a CPU second."""
    before = served.cpu_seconds()
    words = [_load(), served.address, clients, requests, targets, length, *([header] if header else [])]
    found = json.loads(run(*words, seconds=300).stdout)
    cpu = max(served.cpu_seconds() - before, 1 / TICKS)
    total = clients * requests
    return found | {"cpu_ms_per_gib": cpu * 1000 / (total * length / GIB), "requests_per_cpu_s": total / cpu}


@functools.cache
def _load():
    return example("s3", "objects_load")
