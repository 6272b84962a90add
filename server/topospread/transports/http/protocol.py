"""One HTTP connection: uvicorn's, with bounds on what a peer can make grow or keep waiting.

uvicorn reads heads without end, queues pipelined requests without end, waits for slow readers
without end, and logs a line for each request that is none. Here each of these ends the connection,
quietly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import httptools
from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from topospread.access.certificates import NO_NAMES, Names, names_of
from topospread.transports.http.guard import NAMES

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

KEEP_ALIVE: Final = 120
"""Seconds that an idle connection stays open. Longer than the 90 s of Go's clients, so that it is
they who close it: a request that crosses the server's closing is lost, and a POST is not repeated.
"""

REQUEST_SECONDS: Final = 30.0
"""In which a request must have come as a whole: many times what the largest body takes."""

ANSWER_SECONDS: Final = 30.0
"""In which what is to be sent must have been taken: many times what the longest answer takes."""

MAX_HEAD_BYTES: Final = 32 << 10
"""Of a request that are no body; a body's bytes pay for as much framing of their chunks."""

MAX_FIELDS: Final = 100
"""Header fields of a request: each costs many times its bytes. Schedulers send ten."""

MAX_PIPELINED: Final = 16
"""Requests that wait for the answer to the one before; schedulers and Prometheus send none."""

MALFORMED: Final = "malformed"
SLOW: Final = "slow"
"""Why a connection was ended."""


class Protocol(HttpToolsProtocol):
    """A connection.

    Args:
        ended: told why, each time that a connection is ended for what its peer does.
        arguments, more: uvicorn's.
    """

    def __init__(self, ended: Callable[[str], None], *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._ended = ended
        self._names: Names = NO_NAMES
        self._request: asyncio.TimerHandle | None = None
        self._answer: asyncio.TimerHandle | None = None
        self._received = 0
        self._body = 0

    # ------------------------------ the connection

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        super().connection_made(transport)
        self._await_request()
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            certificate = tls.getpeercert(binary_form=True)
            self._names = NO_NAMES if certificate is None else names_of(certificate)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._request_came()
        self._answer_taken()
        super().connection_lost(exc)
        # uvicorn leaves it when the connection was reset, and with it all that the connection had.
        self._unset_keepalive_if_required()

    @override
    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._received += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Nothing is offered to upgrade to: the request is answered as it is.
            pass
        except httptools.HttpParserError:
            self._refuse("Invalid HTTP request received.")
            return
        if self._received - 2 * self._body > MAX_HEAD_BYTES:
            self._refuse("The head of the request is too large.")

    def _refuse(self, text: str) -> None:
        if self.transport.is_closing():
            return
        self._ended(MALFORMED)
        self.send_400_response(text)
        self._await_answer_taken()

    def _give_up(self) -> None:
        self._ended(SLOW)
        self.transport.abort()

    # ------------------------------ requests

    @override
    def on_message_begin(self) -> None:
        super().on_message_begin()
        if len(self.pipeline) >= MAX_PIPELINED:
            raise OverflowError("too many requests before their answers")
        self._received = self._body = 0
        self._await_request()
        self.scope["state"][NAMES] = self._names

    @override
    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= MAX_FIELDS:
            raise OverflowError("too many header fields")
        super().on_header(name, value)

    @override
    def on_body(self, body: bytes) -> None:
        self._body += len(body)
        super().on_body(body)

    @override
    def on_message_complete(self) -> None:
        self._request_came()
        super().on_message_complete()

    def _await_request(self) -> None:
        self._request_came()
        self._request = self.loop.call_later(REQUEST_SECONDS, self._give_up)

    def _request_came(self) -> None:
        if self._request is not None:
            self._request.cancel()
            self._request = None

    # ------------------------------ answers

    @override
    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._await_answer_taken()

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_answer_taken()

    @override
    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._answer_taken()

    @override
    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        # Closing waits for a peer that never takes the rest of its answer.
        self._await_answer_taken()

    def _await_answer_taken(self) -> None:
        if self._answer is None:
            self._answer = self.loop.call_later(ANSWER_SECONDS, self._give_up)

    def _answer_taken(self) -> None:
        if self._answer is not None:
            self._answer.cancel()
            self._answer = None
