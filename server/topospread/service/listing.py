"""Objects as the store has them, at exactly the revision of a view.

The index keeps of a pod what decisions count. Planning also asks what does not count: readiness,
restarts, deletion costs, owners, priorities. That stays in the store and is read when it is asked
for (docs/decisions/0013-planner-reads-pods-from-the-store.md).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from topospread.errors import (
    DeadlineExceeded,
    IdentityChanged,
    NotFound,
    RevisionUnavailable,
    Unavailable,
)
from topospread.replica.replicas import Consistency, Freshness
from topospread.replica.view import Token

if TYPE_CHECKING:
    from collections.abc import Callable

    from topospread.replica.replica import Replica
    from topospread.replica.replicas import Replicas
    from topospread.replica.view import View
    from topospread.store.api import Key, Revision, Store, StoredObject

Objects = dict["Key", "StoredObject"]

LIMIT: Final = 1000
"""Log entries read at once."""


def list_at(
    store: Store,
    replicas: Replicas,
    cluster: str,
    demand: Consistency,
    deadline: float,
    wanted: Callable[[Key], bool],
) -> tuple[Replica, View, Objects]:
    """A view, and the objects that the store had at its revision, without unreadable values.

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
    replicas.resolve(cluster, demand, deadline)
    head = store.head(cluster)
    if not head.identity:
        raise NotFound(f"cluster {cluster!r} is not known: apply objects to it first")
    found: Objects = {}
    for page in store.scan(cluster):
        for item in page:
            if wanted(item.key):
                found[item.key] = item
        if time.monotonic() > deadline:
            raise DeadlineExceeded("the deadline passed while the cluster's pods were being read")
    try:
        reached = _follow(store, cluster, head.identity, head.revision, None, wanted, found)
        token = Token(head.identity, reached)
        fresh = Consistency(Freshness.AT_LEAST_AS_FRESH, token, demand.max_staleness)
        replica, view = replicas.resolve(cluster, fresh, deadline)
        if view.identity != head.identity:
            raise IdentityChanged("another history")
        _follow(store, cluster, head.identity, reached, view.revision, wanted, found)
    except (IdentityChanged, RevisionUnavailable) as cause:
        raise Unavailable(
            f"cluster {cluster!r} was dropped or loaded anew while it was being read: try again"
        ) from cause
    return replica, view, {key: item for key, item in found.items() if item.digest}


def _follow(
    store: Store,
    cluster: str,
    identity: str,
    after: Revision,
    until: Revision | None,
    wanted: Callable[[Key], bool],
    found: Objects,
) -> Revision:
    """Bring objects up to a revision, or to where the log ends now."""
    while until is None or after.number < until.number:
        transactions = store.follow(cluster, identity, after, wait=0, limit=LIMIT)
        if not transactions:
            break
        for transaction in transactions:
            if until is not None and transaction.revision.number > until.number:
                return until
            after = transaction.revision
            for entry in transaction.entries:
                if not wanted(entry.key):
                    continue
                if entry.object is None:
                    found.pop(entry.key, None)
                else:
                    found[entry.key] = entry.object
    return after
