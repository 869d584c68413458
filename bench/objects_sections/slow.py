"""2,000 clients that read a KiB now and then: half of them of what is cached, half of what is not."""

import resource
import socket
import time

from rig import MIB, Rig

from . import servers

SECTION = "slow"
CLIENTS = 2000


def measure(setting, report):
    resource.setrlimit(resource.RLIMIT_NOFILE, (16384, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    clients = 200 if setting.quick else CLIENTS
    with Rig() as rig:
        store = servers.origin(rig)
        served = servers.gateway(rig, store, memory="256MiB", metadata_ttl="1h", connections_max=clients + 100)
        targets = servers.targets(rig, "large")
        servers.load(served, targets, 4, 2, servers.LARGE_BYTES)
        sockets = [_ask(served.port, at) for at in range(clients)]
        for _ in range(3 if setting.quick else 10):
            for one in sockets:
                one.recv(1024)
            time.sleep(0.5)
        # Somebody quick beside them is served.
        begun = time.monotonic()
        servers.load(served, targets, 1, 2, servers.LARGE_BYTES)
        quick_s = time.monotonic() - begun
        memory = served.process.resident_bytes("VmHWM")
        for one in sockets:
            one.close()
    report.cell(SECTION, clients=clients, resident_bytes_max=memory, quick_client_s=round(quick_s, 3))
    report.bar(f"MiB of {clients} slow clients", memory / MIB, 512, False)


def _ask(port, at):
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.connect(("127.0.0.1", port))
    one.sendall(f"GET /large/{at % servers.LARGE_COUNT} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return one
