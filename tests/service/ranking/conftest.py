"""A store and a process for each test of the core; a server for the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.servers import Peer, served
from tests.service.ranking.calls import Ranker
from tests.service.world import World, world

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
def ranker(peer: Peer) -> Ranker:
    return Ranker(peer)
