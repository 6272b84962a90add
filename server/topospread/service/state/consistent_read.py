"""Objects at exactly the revision of a view, read by name while others write.

The index knows the names of the pods of each class; the store has what no decision counts:
readiness, restarts, deletion costs, priorities. What is read is as new as the read. If some of it
has changed since the view, all of it is brought to a newer view by the log, and the caller chooses
anew: most of what it needs has been read by then.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import checkpoint
from topospread.errors import (
    ClusterLoading,
    ClusterNotFound,
    IdentityChanged,
    RevisionUnavailable,
)
from topospread.replica.view import Consistency, Freshness, Token, check_continued, log_until
from topospread.store.api import scan_all
from topospread.store.model import Key, Kind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from typing import Self

    from topospread.index.pods import PodMembers
    from topospread.replica.replica import Replica
    from topospread.replica.replicas import Replicas
    from topospread.replica.view import View
    from topospread.store.api import Reader
    from topospread.store.model import StoredObject, Transaction

READ_AT_ONCE: Final = 500
"""Objects of one get(): Redis serves nobody else meanwhile."""


class ConsistentRead:
    """Objects of a cluster at the revision of one view. For one thread.

    Args:
        store: where the objects are.
        replica: has a view.

    Attributes:
        replica: follows the cluster.
        view: the newest one, until :meth:`read` moves to a newer one.
        pods: the pods of the view by class.

    Raises:
        Unavailable: the cluster is being loaded anew.
    """

    def __init__(self, store: Reader, replica: Replica) -> None:
        self._store = store
        self.replica = replica
        self.view: View
        self.pods: PodMembers
        self.view, self.pods = replica.view_and_members()
        self._identity, self._reached = self.view.identity, self.view.revision
        self._objects: dict[Key, StoredObject | None] = {}
        self._namespaces: set[str] = set()
        self._listed: set[tuple[Kind, str]] = set()

    @classmethod
    def newest(
        cls,
        store: Reader,
        replicas: Replicas,
        cluster: str,
        demand: Consistency,
        deadline: float,
    ) -> Self:
        """Begin with a view that has all that the store has at the call.

        Raises:
            NotFound: no such cluster.
            Unavailable: the store is out of reach, or its history ended meanwhile.
            And what Replicas.resolve raises.
        """
        # First, so that a demand for a revision is refused before anything is read.
        replicas.resolve(cluster, demand, deadline)
        head = store.head(cluster)
        if not head.identity:
            raise ClusterNotFound(cluster)
        token = Token(head.identity, head.revision)
        fresh = Consistency(Freshness.AT_LEAST_AS_FRESH, token, demand.max_staleness)
        with ended_meanwhile(cluster):
            replica, _ = replicas.resolve(cluster, fresh, deadline)
        return cls(store, replica)

    def read(self, pods: Collection[Key], listed: Collection[tuple[Kind, str]] = ()) -> bool:
        """Read what has not been read yet.

        Args:
            pods: pods of the view.
            listed: kinds and namespaces of which all objects are to be read.

        Returns:
            Whether all that was read is at the view's revision. If not, the view is a newer one:
            choose by it what to read, and call again.

        Raises:
            Unavailable: the store is out of reach, or the cluster was loaded anew meanwhile, or
                changes faster than it is read.
        """
        missing = [key for key in pods if key not in self._objects]
        lists = {each for each in listed if each not in self._listed}
        if not missing and not lists:
            return True
        cluster = self.replica.cluster
        self._objects |= dict.fromkeys(missing)
        for some in _pieces(missing):
            checkpoint()
            self._keep(self._store.get(cluster, some))
        for kind, namespace in lists:
            for page in scan_all(self._store, cluster, kind, namespace):
                checkpoint()
                self._keep(page)
        self._namespaces |= {key.namespace for key in missing}
        self._listed |= lists
        with ended_meanwhile(cluster):
            # As far as it goes now: a writer that never rests does not draw it out.
            head = self._store.head(cluster)
            check_continued(self._identity, self._reached, head)
            later = list(self._log(head.revision.number))
            changed = {entry.key for transaction in later for entry in transaction.entries}
            if changed.isdisjoint(missing) and lists.isdisjoint(key[:2] for key in changed):
                return True
            self._apply(later)
        self.refresh()
        return False

    def objects(self, keys: Iterable[Key]) -> list[StoredObject]:
        """Those that were read and are there, by name; values that cannot be read count as absent.

        Args:
            keys: of some that were read.
        """
        found = (self._objects.get(key) for key in sorted(keys))
        return [item for item in found if item is not None and item.digest]

    def listed(self, kind: Kind, namespace: str) -> list[StoredObject]:
        """All of a kind and namespace that were listed, as :meth:`objects`."""
        return self.objects(
            key for key in self._objects if key.kind is kind and key.namespace == namespace
        )

    def _keep(self, found: Iterable[StoredObject]) -> None:
        self._objects |= {item.key: item for item in found}

    def refresh(self) -> None:
        """Move to the newest view, with what has been read.

        Raises:
            Unavailable: as :meth:`read`.
        """
        with ended_meanwhile(self.replica.cluster):
            while self.replica.catch_up().revision.number < self._reached.number:
                checkpoint()
            self.view, self.pods = self.replica.view_and_members()
            if self.view.identity != self._identity:
                raise IdentityChanged("another history")
            self._apply(self._log(self.view.revision.number))

    def _apply(self, transactions: Iterable[Transaction]) -> None:
        for transaction in transactions:
            self._reached = transaction.revision
            for entry in transaction.entries:
                key = entry.key
                pod = key.kind is Kind.POD and key.namespace in self._namespaces
                if pod or (key.kind, key.namespace) in self._listed:
                    self._objects[key] = entry.object

    def _log(self, last: int) -> Iterator[Transaction]:
        """Transactions after those of the objects, up to one that the store has."""
        cluster, identity = self.replica.cluster, self._identity
        for transactions in log_until(
            lambda after: self._store.follow(cluster, identity, after, wait=0), self._reached, last
        ):
            for transaction in transactions:
                checkpoint()
                if transaction.revision.number > last:
                    return
                yield transaction


def _pieces(keys: Iterable[Key]) -> Iterator[Sequence[Key]]:
    rest = list(keys)
    for first in range(0, len(rest), READ_AT_ONCE):
        yield rest[first : first + READ_AT_ONCE]


@contextmanager
def ended_meanwhile(cluster: str) -> Iterator[None]:
    """Turn what a store says of a history that ended into an error by which callers try again."""
    try:
        yield
    except (IdentityChanged, RevisionUnavailable) as cause:
        raise ClusterLoading(
            f"cluster {cluster!r} was deleted, loaded anew or changed in large part while it was"
            " being read: try again"
        ) from cause
