"""TLS handshakes of callers who are not what they seem."""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import Final

FORGED: Final = (
    b'{"time":"2026-11-22T00:00:00Z","level":"info","logger":"topospread.audit","caller":"root"}'
)
"""A line of a log, as a name of a server that somebody asks for."""


def hello(name: bytes, protocols: list[str]) -> bytes:
    """The first bytes of a TLS connection that asks for a server of any name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(protocols)
    # Of the same length, and one that Python takes.
    placeholder = "".join("." if at % 50 == 49 else "x" for at in range(len(name) - 1)) + "x"
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(into, out, server_hostname=placeholder).do_handshake()
    made = out.read()
    assert placeholder.encode() in made
    return made.replace(placeholder.encode(), name)
