"""Servers under overload."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.overload.callers import Caller, Service
from tests.servers import ServerProcess, two_zones

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def serve() -> Iterator[Callable[..., Service]]:
    """Starts servers with a small cluster; takes flags."""
    with ExitStack() as running:

        def start(*flags: str) -> Service:
            process = ServerProcess(
                *("--store", "memory:", "--http", "127.0.0.1:0"),
                *flags,
            )
            service = Service(running.enter_context(process))
            assert service.figures().total("topospread_transport_info", used="grpcio") == 1
            with Caller(service.address) as caller:
                caller.apply(two_zones())
                caller.evaluate()
            return service

        yield start
