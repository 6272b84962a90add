"""A store and a process for each test of the core; a server for the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.servers import Peer, served
from tests.service.world import World, node, running, world

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def empty_world() -> Iterator[World]:
    with world() as made:
        yield made


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    with served() as server, Peer(server.address) as peer:
        yield peer


@pytest.fixture
def three_zones(empty_world: World) -> World:
    """Zones a, b and c of one node each, with 2, 1 and 0 pods of the app "web"."""
    empty_world.apply(
        *(node(f"n-{zone}", zone) for zone in "abc"),
        running("w1", "n-a"),
        running("w2", "n-a"),
        running("w3", "n-b"),
    )
    return empty_world
