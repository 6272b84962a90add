"""An HTTP/2 client for attacks: it keeps to the peer's flow control, and to nothing else.

A connection has many calls under way, each with a body that may stop before its end; it may grant
the server no window, so that answers are not taken.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import struct
import time
import zlib
from typing import TYPE_CHECKING, Final

from bench import http2

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FRAME: Final = 16_384
DEFAULT_WINDOW: Final = 65_535
_PADDED_OUT: Final = b"\x82\x7d"
"""The tag of field 2000, of bytes: no message of ours has it, so that it parses and is skipped."""


_WOULD_BLOCK: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Body:
    """What one call sends: a head, zeros, a tail; the last `withheld` bytes are never sent."""

    def __init__(self, head: bytes = b"", zeros: int = 0, withheld: int = 0) -> None:
        self.head = head
        self.size = len(head) + zeros - withheld
        self.ends = not withheld

    def piece(self, at: int, most: int) -> bytes:
        """So many bytes at most, from there on."""
        end = min(self.size, at + most)
        head = self.head[at:end]
        return head + bytes(end - at - len(head))


def plain(size: int, withheld: int = 0) -> Body:
    """One message of so many bytes, which parses as any request."""
    field = _PADDED_OUT + _varint(size)
    return Body(struct.pack(">BI", 0, size + len(field)) + field, size, withheld)


def packed(size: int, message: bytes = b"") -> Body:
    """One gzip message that unpacks to `message` and so many bytes of an unknown field."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    field = message + _PADDED_OUT + _varint(size)
    content = packer.compress(field) + packer.compress(bytes(size)) + packer.flush()
    return Body(struct.pack(">BI", 1, len(content)) + content)


def short(message: bytes = b"") -> Body:
    """One message as it is."""
    return Body(struct.pack(">BI", 0, len(message)) + message)


class Line:
    """One connection.

    Args:
        address: host:port.
        tls: to speak TLS.
        takes: bytes of each answer that the server may send; 0 leaves answers untaken.

    Attributes:
        sent: bytes of bodies.
        ended: calls that the server ended.
        closed: the server closed the connection.
    """

    def __init__(
        self, address: str, tls: ssl.SSLContext | None = None, takes: int = 2**31 - 1
    ) -> None:
        host, _, port = address.rpartition(":")
        raw = socket.create_connection((host, int(port)), 30.0)
        if tls is not None:
            raw = tls.wrap_socket(raw, server_hostname=host)
        self.socket = raw
        self.sent = self.ended = 0
        self.closed = False
        self._next = 1
        self._window = DEFAULT_WINDOW
        self._initial = DEFAULT_WINDOW
        self._streams: dict[int, list[int]] = {}
        self._bodies: dict[int, Body] = {}
        self._out = bytearray()
        self._rest = b""
        self._taken = 0
        settings = struct.pack(">HI", 4, takes)
        most = struct.pack(">I", 2**31 - 1 - DEFAULT_WINDOW)
        raw.setblocking(True)
        self._write(
            http2._PREFACE
            + http2._frame(http2._SETTINGS, 0, 0, settings)
            + http2._frame(http2._WINDOW, 0, 0, most)
        )
        raw.setblocking(False)

    def fileno(self) -> int:
        """For selectors."""
        return self.socket.fileno()

    def close(self) -> None:
        """End the connection."""
        self.socket.close()

    def call(self, path: str, body: Body, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """Begin a call."""
        stream = self._next
        self._next += 2
        fields = [
            *((b"te", b"trailers"), (b"content-type", b"application/grpc")),
            *((b"grpc-encoding", b"gzip"),) * (body.head[:1] == b"\1"),
            *headers,
        ]
        block = http2._METHOD_POST + http2._SCHEME_HTTP
        block += b"\x01" + http2._text(b"localhost") + b"\x04" + http2._text(path.encode())
        block += b"".join(b"\0" + http2._text(name) + http2._text(value) for name, value in fields)
        self._out += http2._frame(http2._HEADERS, http2._END_HEADERS, stream, block)
        self._streams[stream] = [self._initial, 0]
        self._bodies[stream] = body

    def pump(self) -> None:
        """Take in what came, and send what there is room for."""
        if self.closed:
            return
        try:
            self._read()
            self._send()
        except _WOULD_BLOCK:
            pass
        except OSError:
            self.closed = True

    @property
    def idle(self) -> bool:
        """Nothing is left to be sent that may be sent."""
        return self.closed or not (self._out or self._bodies)

    def _read(self) -> None:
        while True:
            try:
                received = self.socket.recv(1 << 18)
            except _WOULD_BLOCK:
                return
            if not received:
                self.closed = True
                return
            self._take(received)

    def _take(self, received: bytes) -> None:
        buffer = self._rest + received if self._rest else received
        at, end = 0, len(buffer)
        while end - at >= 9:
            after = at + 9 + int.from_bytes(buffer[at : at + 3], "big")
            if after > end:
                break
            kind, flags = buffer[at + 3], buffer[at + 4]
            stream = int.from_bytes(buffer[at + 5 : at + 9], "big")
            self._frame(kind, flags, stream, buffer[at + 9 : after])
            at = after
        self._rest = buffer[at:]
        self._taken += len(received)
        if self._taken > 1 << 24:
            self._out += http2._frame(http2._WINDOW, 0, 0, struct.pack(">I", self._taken))
            self._taken = 0

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == http2._SETTINGS and not flags & http2._ACK:
            for at in range(0, len(payload), 6):
                name, value = struct.unpack(">HI", payload[at : at + 6])
                if name == 4:
                    for state in self._streams.values():
                        state[0] += value - self._initial
                    self._initial = value
            self._out += http2._frame(http2._SETTINGS, http2._ACK, 0, b"")
        elif kind == http2._PING and not flags & http2._ACK:
            self._out += http2._frame(http2._PING, http2._ACK, 0, payload)
        elif kind == http2._WINDOW:
            more = int.from_bytes(payload, "big")
            if not stream:
                self._window += more
            elif stream in self._streams:
                self._streams[stream][0] += more
        elif kind == http2._RST or (
            kind in (http2._DATA, http2._HEADERS) and flags & http2._END_STREAM
        ):
            self.ended += stream in self._streams
            self._streams.pop(stream, None)
            self._bodies.pop(stream, None)
        elif kind == http2._GOAWAY:
            self.closed = True

    def _send(self) -> None:
        self._flush()
        for stream, body in tuple(self._bodies.items()):
            if stream not in self._streams:
                continue
            state = self._streams[stream]
            while state[1] < body.size and (most := min(FRAME, state[0], self._window)) > 0:
                piece = body.piece(state[1], most)
                state[0] -= len(piece)
                self._window -= len(piece)
                state[1] += len(piece)
                self.sent += len(piece)
                last = body.ends and state[1] == body.size
                flags = http2._END_STREAM if last else 0
                self._out += http2._frame(http2._DATA, flags, stream, piece)
                self._flush()
            if state[1] == body.size:
                self._bodies.pop(stream, None)

    def _flush(self) -> None:
        while self._out:
            del self._out[: self.socket.send(self._out[: 1 << 18])]

    def _write(self, data: bytes) -> None:
        self.socket.sendall(data)


def _varint(number: int) -> bytes:
    digits = []
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*digits, number))


def pump(lines: Iterable[Line], seconds: float) -> None:
    """Keep connections going for so long, or until nothing is left to be sent."""
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as ready:
        waiting = []
        for line in lines:
            if not line.closed:
                ready.register(line, selectors.EVENT_READ)
                waiting.append(line)
        for line in waiting:
            line.pump()
        while time.monotonic() < deadline and not all(line.idle for line in waiting):
            for key, _ in ready.select(0.02):
                line = key.fileobj  # type: ignore[assignment] # what was registered
                line.pump()
                if line.closed:
                    ready.unregister(line)
            for line in waiting:
                if not line.idle:
                    line.pump()
