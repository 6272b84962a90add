"""Objects as the store has them, at exactly the revision of a view.

The index keeps of a pod what decisions count. Planning also asks what does not count: readiness,
restarts, deletion costs, owners, priorities. That stays in the store and is read when it is asked
for (docs/decisions/0013-planner-reads-pods-from-the-store.md).
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import checkpoint
from topospread.errors import ClusterLoading, ClusterNotFound, IdentityChanged, RevisionUnavailable
from topospread.replica.replicas import Consistency, Freshness
from topospread.replica.view import Token
from topospread.service.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from topospread.replica.replica import Replica
    from topospread.replica.replicas import Replicas
    from topospread.replica.view import View
    from topospread.store.api import Key, Revision, Store, StoredObject

Objects = dict["Key", "StoredObject"]

LIMIT: Final = 1000
"""Log entries read at once."""


@dataclass(slots=True, eq=False)
class Listed:
    """Objects at a view's revision.

    Attributes:
        objects: values that cannot be read have an empty digest.
    """

    store: Store
    replica: Replica
    view: View
    wanted: Callable[[Key], bool]
    objects: Objects

    def readable(self) -> list[StoredObject]:
        """All but the values that cannot be read, by name: stores list in orders of their own."""
        found = [item for item in self.objects.values() if item.digest]
        return sorted(found, key=lambda item: (item.key.kind, item.key.namespace, item.key.name))

    def advance(self, view: View) -> None:
        """Go on to a later view of the same history.

        Raises:
            Unavailable: that history ended.
        """
        with _ended_meanwhile(self.replica.cluster):
            if view.identity != self.view.identity:
                raise IdentityChanged("another history")
            _follow(self, self.view.revision, view.revision)
        self.view = view


def list_at(
    store: Store,
    replicas: Replicas,
    cluster: str,
    demand: Consistency,
    deadline: float,
    wanted: Callable[[Key], bool],
) -> Listed:
    """A view, and the objects that the store had at its revision.

    The store is scanned, and the log followed from before the scan to the view's revision.

    Args:
        store: where the objects are.
        replicas: where the views are.
        cluster: its name.
        demand: how fresh the view must be.
        deadline: of the call, on the monotonic clock.
        wanted: which objects to return.

    Raises:
        Unavailable: the store is out of reach, or its history ended meanwhile.
        And what Replicas.resolve raises.
    """
    # First, so that a demand for a revision is refused before anything is read.
    replica, view = replicas.resolve(cluster, demand, deadline)
    head = store.head(cluster)
    if not head.identity:
        raise ClusterNotFound(cluster)
    listed = Listed(store, replica, view, wanted, {})
    turn = Turns(deadline, "the cluster was read")
    for page in store.scan(cluster):
        for item in page:
            turn()
            if wanted(item.key):
                listed.objects[item.key] = item
    with _ended_meanwhile(cluster):
        if view.identity != head.identity:
            raise IdentityChanged("another history")
        reached = _follow(listed, head.revision, None)
        token = Token(head.identity, reached)
        fresh = Consistency(Freshness.AT_LEAST_AS_FRESH, token, demand.max_staleness)
        listed.replica, listed.view = replicas.resolve(cluster, fresh, deadline)
        _follow(listed, reached, listed.view.revision)
    return listed


@contextmanager
def _ended_meanwhile(cluster: str) -> Iterator[None]:
    try:
        yield
    except (IdentityChanged, RevisionUnavailable) as cause:
        raise ClusterLoading(
            f"cluster {cluster!r} was deleted or loaded anew while it was being read: try again"
        ) from cause


def _follow(listed: Listed, after: Revision, until: Revision | None) -> Revision:
    """Bring objects up to a revision, or to where the log ends now."""
    cluster, identity = listed.replica.cluster, listed.view.identity
    while until is None or after.number < until.number:
        transactions = listed.store.follow(cluster, identity, after, wait=0, limit=LIMIT)
        if not transactions:
            break
        for transaction in transactions:
            if until is not None and transaction.revision.number > until.number:
                return until
            after = transaction.revision
            for entry in transaction.entries:
                checkpoint()
                if not listed.wanted(entry.key):
                    continue
                if entry.object is None:
                    listed.objects.pop(entry.key, None)
                else:
                    listed.objects[entry.key] = entry.object
    return after
