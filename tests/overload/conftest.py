"""Servers under overload."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.overload.callers import Service, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def serve() -> Iterator[Callable[..., Service]]:
    """Starts servers with a small cluster; takes flags."""
    with ExitStack() as running:
        yield lambda *flags: running.enter_context(serving(*flags))
