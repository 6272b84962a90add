"""A store and a process for each test of the core."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.service.world import World, world

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def empty_world() -> Iterator[World]:
    with world() as made:
        yield made
