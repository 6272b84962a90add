"""A server without a network: replicas and writes on a store of its own."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from tests.conformance.objects import object_of
from tests.waiting import PATIENCE
from topospread.codec.stored import stored
from topospread.replica.replicas import Replicas, seconds_from_now
from topospread.replica.state import ReplicaOptions
from topospread.replica.view import Consistency, Freshness, Token, View
from topospread.service.state.write import FEED_KINDS, IncomingObjects, StateWriter
from topospread.store.model import Key, Kind, Remove

if TYPE_CHECKING:
    from collections.abc import Collection

    from topospread.replica.replica import Replica
    from topospread.store.api import Store

CLUSTER = "prod"

NEWEST = Consistency(Freshness.FULLY_CONSISTENT)


def at_least(token: str) -> Consistency:
    return Consistency(Freshness.AT_LEAST_AS_FRESH, Token.decode(token))


class Server:
    """One server.

    Attributes:
        waits: mode and seconds of each resolve, in order.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.waits: list[tuple[Freshness, float]] = []
        waited = {mode: self._noter(mode) for mode in Freshness}
        self.replicas = Replicas(store, ReplicaOptions(coalesce=0.0), on_waited=waited)
        self.writes = StateWriter(store, self.replicas)

    def _noter(self, mode: Freshness):
        return lambda seconds: self.waits.append((mode, seconds))

    @property
    def replica(self) -> Replica:
        """Of the cluster, which is followed."""
        (found,) = [each for each in self.replicas.running() if each.cluster == CLUSTER]
        return found

    def view(self, demand: Consistency = NEWEST, seconds: float = PATIENCE) -> View:
        """A view that is fresh enough."""
        return self.replicas.resolve(CLUSTER, demand, seconds_from_now(seconds))[1]

    def nodes(self, demand: Consistency = NEWEST) -> list[str]:
        """The names of the nodes in such a view."""
        return list(self.view(demand).snapshot.nodes.sorted_names)

    def apply(self, *names: str) -> str:
        """Write nodes; returns the revision."""
        return self.writes.apply(
            CLUSTER, nodes(*names), force=False, timeout=PATIENCE, traced=untraced
        ).token

    def delete(self, name: str) -> str:
        """Delete a node; returns the revision."""
        removals = [Remove(Key(Kind.NODE, "", name))]
        return self.writes.delete(CLUSTER, removals, timeout=PATIENCE, traced=untraced).token

    def list_kind(self, kind: Kind, *names: str, feed: Collection[Kind] = ()) -> str:
        """Replace all objects of a kind by these nodes, or none; returns the revision."""
        return self.writes.replace(
            CLUSTER,
            kind,
            [nodes(*names)],
            resource_version="",
            force=False,
            timeout=PATIENCE,
            traced=untraced,
            kinds=feed,
        ).token

    def list_all(self, *names: str) -> str:
        """Replace everything by these nodes; returns the revision."""
        for kind in FEED_KINDS - {Kind.NODE}:
            self.list_kind(kind)
        return self.list_kind(Kind.NODE, *names)


def nodes(*names: str) -> list[IncomingObjects]:
    """Nodes with these names, as a server takes them."""
    manifests = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": n}} for n in names]
    return [IncomingObjects(stored(object_of(manifest))) for manifest in manifests]


def untraced(operation: str, changes: int) -> nullcontext[None]:
    del operation, changes
    return nullcontext()
