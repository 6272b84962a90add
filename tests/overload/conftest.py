"""Servers under overload: each test runs on every way that calls can take."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest

from tests.overload.callers import Caller, Service
from tests.servers import ServerProcess, two_zones

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WAYS: Final = ("--transport=grpcio", "--transport=grpcio-threads")
"""The flags of `topospread serve` that choose how calls reach what answers them."""


@pytest.fixture(params=WAYS)
def serve(request: pytest.FixtureRequest) -> Iterator[Callable[..., Service]]:
    """Starts servers with a small cluster and one thread for decisions; takes more flags."""
    with ExitStack() as running:

        def start(*flags: str) -> Service:
            process = ServerProcess(
                *request.param.split(),
                *("--store", "memory:", "--http", "127.0.0.1:0"),
                *("--decision-threads", "1"),
                *flags,
            )
            service = Service(running.enter_context(process))
            used = request.param.partition("=")[2]
            assert service.figures().total("topospread_transport_info", used=used) == 1
            with Caller(service.address) as caller:
                caller.apply(two_zones())
                caller.evaluate()
            return service

        yield start
