"""Which clusters there are, while one that is not there is looked for."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import TYPE_CHECKING, cast

import pytest

from tests.counting import Counting
from topospread.errors import ClusterNotFound
from topospread.replica.replicas import Replicas
from topospread.replica.state import ReplicaOptions
from topospread.service.state.pages import PageRequest
from topospread.service.state.read import StateReader

if TYPE_CHECKING:
    from tests.service.world import World
    from topospread.store.api import Store
    from topospread.store.model import Head


class HeldBack(Counting):
    """A store that says how far a cluster is only once it may."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.released = threading.Event()

    def head(self, cluster: str, timeout: float | None = None) -> Head:
        assert self.released.wait(30.0)
        return self._store.head(cluster, timeout=timeout)


def test_a_cluster_that_is_only_looked_for_is_not_there(three_zones: World) -> None:
    source = HeldBack(three_zones.store)
    with closing(Replicas(cast("Store", source), ReplicaOptions())) as replicas:
        replicas._started("nobodys")
        try:
            reads = StateReader(three_zones.store, replicas)
            with pytest.raises(ClusterNotFound):
                reads.cluster("nobodys")
            found, _ = reads.clusters(lambda _: True, PageRequest())
            assert [each.name for each in found] == ["prod"]
        finally:
            source.released.set()
