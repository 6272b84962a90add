"""What ranks over gRPC."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.service.ranking.calls import Ranker

if TYPE_CHECKING:
    from tests.servers import Peer


@pytest.fixture
def ranker(peer: Peer) -> Ranker:
    return Ranker(peer)
