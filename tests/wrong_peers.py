"""What a client may meet instead of the server that it means: certificates, and other listeners."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import trustme

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NAME: Final = "topospread.example"
"""The name that the certificate "other name" is for."""


class Certificates:
    """PEM files of two authorities: `folder` has CERTIFICATE.pem and CERTIFICATE.key of each.

    "server" is for 127.0.0.1, "other-name" for NAME, "expired" ended in 2020; "client" is of the
    same authority "ca", and "foreign" of "foreign-ca".
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ours, foreign = trustme.CA(), trustme.CA()
        ours.cert_pem.write_to_path(folder / "ca.pem")
        foreign.cert_pem.write_to_path(folder / "foreign-ca.pem")
        past = datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 2, 1, tzinfo=UTC)
        self._write("server", ours.issue_cert("127.0.0.1"))
        self._write("other-name", ours.issue_cert(NAME))
        self._write("expired", ours.issue_cert("127.0.0.1", not_before=past[0], not_after=past[1]))
        self._write("client", ours.issue_cert("caller@example.org"))
        self._write("foreign", foreign.issue_cert("caller@example.org"))

    def file(self, name: str) -> str:
        """Path of one of the files."""
        return str(self.folder / name)

    def server(self, certificate: str, *, mutual: bool = False) -> dict[str, str]:
        """Settings of a server with a certificate, which may ask clients for one of "ca"."""
        files = {
            "tls_cert": self.file(f"{certificate}.pem"),
            "tls_key": self.file(f"{certificate}.key"),
        }
        return {**files, "client_ca": self.file("ca.pem")} if mutual else files

    def _write(self, name: str, issued: trustme.LeafCert) -> None:
        issued.private_key_pem.write_to_path(self.folder / f"{name}.key")
        for number, part in enumerate(issued.cert_chain_pems):
            part.write_to_path(self.folder / f"{name}.pem", append=number > 0)


def answer(text: bytes) -> Callable[[socket.socket], None]:
    """A peer that answers a text to whatever it is sent, and closes."""

    def to(stream: socket.socket) -> None:
        stream.recv(4096)
        stream.sendall(text)

    return to


def silence(stream: socket.socket) -> None:
    """A peer that says nothing for as long as it is connected to."""
    while stream.recv(4096):
        pass


@contextmanager
def listening(peer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A listener that gives each connection to a peer; its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def converse(stream: socket.socket) -> None:
            with stream, suppress(OSError):
                peer(stream)

        def accept() -> None:
            with suppress(OSError):  # the listener is shut down
                while True:
                    stream, _ = listener.accept()
                    threading.Thread(target=converse, args=(stream,), daemon=True).start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
