"""A small NBD client, for what ready-made clients do not do: odd requests, half requests, and exact bookkeeping.

It follows the NBD project's doc/proto.md: fixed newstyle, NBD_OPT_GO, simple and structured replies.
"""

import socket
import struct

NBDMAGIC = 0x4E42444D41474943
IHAVEOPT = 0x49484156454F5054
OPTION_REPLY = 0x3E889045565A9
REQUEST = 0x25609513
SIMPLE_REPLY = 0x67446698
STRUCTURED_REPLY = 0x668E33EF

OPT_ABORT, OPT_LIST, OPT_INFO, OPT_GO, OPT_STRUCTURED_REPLY = 2, 3, 6, 7, 8
REP_ACK, REP_SERVER, REP_INFO, REP_ERROR = 1, 2, 3, 1 << 31
INFO_EXPORT, INFO_BLOCK_SIZE = 0, 3
READ, WRITE, DISC, FLUSH, TRIM, WRITE_ZEROES = 0, 1, 2, 3, 4, 6
FLAG_FUA, FLAG_NO_HOLE = 1, 2
EIO, EINVAL, ENOSPC, ESHUTDOWN = 5, 22, 28, 108

REPLY_DONE = 1
NONE, OFFSET_DATA, OFFSET_HOLE = 0, 1, 2
ERROR_BIT = 1 << 15


class NbdError(Exception):
    """The server answered with an error; `code` is the protocol's number, which is Linux's errno."""

    def __init__(self, code, what):
        super().__init__(f"{what}: error {code}")
        self.code = code


class NbdClient:
    """One connection. Requests are answered one by one, unless `send` and `receive` are used directly."""

    def __init__(self, address, export, structured=True, timeout=60.0, go=True):
        unix = not isinstance(address, tuple)
        self.socket = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
        self.socket.settimeout(timeout)
        self.socket.connect(str(address) if unix else address)
        self.cookie = 0
        self.reads = {}
        self.size_bytes = self.flags = self.block_sizes = None
        magic, option_magic, _flags = struct.unpack(">QQH", self._take(18))
        assert (magic, option_magic) == (NBDMAGIC, IHAVEOPT), "no newstyle greeting"
        self.socket.sendall(struct.pack(">I", 3))
        self.structured = structured and self.option(OPT_STRUCTURED_REPLY)[-1][0] == REP_ACK
        if go:
            self.go(export)

    def option(self, option, data=b""):
        """All replies to an option: (type, data)."""
        self.socket.sendall(struct.pack(">QII", IHAVEOPT, option, len(data)) + data)
        replies = []
        while True:
            magic, echoed, kind, length = struct.unpack(">QIII", self._take(20))
            assert (magic, echoed) == (OPTION_REPLY, option), "a reply to another option"
            replies.append((kind, self._take(length)))
            if kind == REP_ACK or kind & REP_ERROR:
                return replies

    def go(self, export):
        """Enters transmission."""
        name = export.encode()
        replies = self.option(OPT_GO, struct.pack(">I", len(name)) + name + struct.pack(">HH", 1, INFO_BLOCK_SIZE))
        if replies[-1][0] != REP_ACK:
            raise NbdError(replies[-1][0] & 0xFFFF, f"export {export!r}")
        for kind, data in replies:
            if kind == REP_INFO and struct.unpack(">H", data[:2])[0] == INFO_EXPORT:
                self.size_bytes, self.flags = struct.unpack(">QH", data[2:12])
            elif kind == REP_INFO and struct.unpack(">H", data[:2])[0] == INFO_BLOCK_SIZE:
                self.block_sizes = struct.unpack(">III", data[2:14])

    def list(self):
        """Names of exports."""
        servers = [data for kind, data in self.option(OPT_LIST) if kind == REP_SERVER]
        return [data[4:4 + struct.unpack(">I", data[:4])[0]].decode() for data in servers]

    def send(self, command, offset=0, length=0, data=b"", flags=0):
        """Sends a request; returns its cookie."""
        self.cookie += 1
        self.reads[self.cookie] = (offset, length if command == READ else 0)
        self.socket.sendall(struct.pack(">IHHQQI", REQUEST, flags, command, self.cookie, offset, length) + data)
        return self.cookie

    def receive(self):
        """The next answer that is complete: (cookie, error or 0, data)."""
        error, pieces, buffer = 0, 0, None
        while True:
            magic, = struct.unpack(">I", self._take(4))
            if magic == SIMPLE_REPLY:
                error, cookie = struct.unpack(">IQ", self._take(12))
                _, length = self.reads.pop(cookie)
                return cookie, error, self._take(length) if not error else b""
            assert magic == STRUCTURED_REPLY, f"reply magic {magic:#x}"
            flags, kind, cookie, length = struct.unpack(">HHQI", self._take(16))
            payload = self._take(length)
            offset, wanted = self.reads[cookie]
            if kind & ERROR_BIT:
                error = error or struct.unpack(">I", payload[:4])[0]
            elif kind in (OFFSET_DATA, OFFSET_HOLE):
                buffer = bytearray(wanted) if buffer is None else buffer
                pieces += _place(buffer, offset, kind, payload)
            if flags & REPLY_DONE:
                del self.reads[cookie]
                assert error or pieces == wanted, f"{pieces} of {wanted} bytes were sent"
                return cookie, error, bytes(buffer or b"")

    def call(self, command, offset=0, length=0, data=b"", flags=0):
        """A request and its answer."""
        sent = self.send(command, offset, length, data, flags)
        cookie, error, found = self.receive()
        assert cookie == sent, "an answer to another request"
        if error:
            raise NbdError(error, f"command {command} at {offset}+{length}")
        return found

    def read(self, offset, length):
        return self.call(READ, offset, length)

    def write(self, offset, data, fua=False):
        self.call(WRITE, offset, len(data), data, FLAG_FUA if fua else 0)

    def flush(self):
        self.call(FLUSH)

    def trim(self, offset, length, fua=False):
        self.call(TRIM, offset, length, flags=FLAG_FUA if fua else 0)

    def zero(self, offset, length, fua=False, no_hole=False):
        self.call(WRITE_ZEROES, offset, length, flags=(FLAG_FUA if fua else 0) | (FLAG_NO_HOLE if no_hole else 0))

    def disconnect(self):
        self.send(DISC)
        self.close()

    def close(self):
        self.socket.close()

    def _take(self, length):
        parts = bytearray()
        while len(parts) < length:
            part = self.socket.recv(min(length - len(parts), 1 << 20))
            if not part:
                raise ConnectionError("the server closed the connection")
            parts += part
        return bytes(parts)


def _place(buffer, offset, kind, payload):
    start = struct.unpack(">Q", payload[:8])[0] - offset
    length = len(payload) - 8 if kind == OFFSET_DATA else struct.unpack(">I", payload[8:12])[0]
    assert 0 <= start and start + length <= len(buffer), "a piece lies outside of its request"
    if kind == OFFSET_DATA:
        buffer[start:start + length] = payload[8:]
    return length
