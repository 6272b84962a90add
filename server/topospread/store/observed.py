"""A decorator around any backend that reports failures and the threads that wait for the store."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Final, Literal, final, get_args

from topospread.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from topospread.store.api import Store
    from topospread.store.model import (
        Applied,
        Change,
        Head,
        Key,
        Kind,
        Lease,
        Revision,
        StoredObject,
        Transaction,
        Unchanged,
    )

LOG: Final = logging.getLogger(__name__)

Operation = Literal[
    "head",
    "verify",
    "scan",
    "read_range",
    "read_keys",
    "read_undo",
    "get",
    "clusters",
    "follow",
    "apply",
    "purge",
    "drop",
    "confirm_history",
    "lease",
    "leased",
    "ping",
]
OPERATIONS: Final[tuple[str, ...]] = get_args(Operation)
"""The names that failures are reported by."""

Around = Callable[[], AbstractContextManager[None]]
"""Entered by the thread that calls the store, for as long as it waits."""


@final
class ObservedStore:
    """A :class:`~topospread.store.api.Store` that reports what another one does.

    Args:
        store: does the work.
        on_failed: called with the name of each operation that raised StoreUnavailable.
        around: see :data:`Around`.
    """

    def __init__(self, store: Store, on_failed: Callable[[str], None], around: Around) -> None:
        self._store = store
        self._on_failed = on_failed
        self._around = around
        self._failing: set[str] = set()

    @property
    def address(self) -> str:
        """See the contract."""
        return self._store.address

    def head(self, cluster: str, *, timeout: float | None = None) -> Head:
        """See the contract."""
        with self._observing("head"):
            return self._store.head(cluster, timeout=timeout)

    def verify(self, cluster: str, identity: str, revision: Revision) -> None:
        """See the contract."""
        with self._observing("verify"):
            self._store.verify(cluster, identity, revision)

    def scan(
        self, cluster: str, page: int = 2000, *, kind: Kind | None = None
    ) -> Iterator[Sequence[StoredObject]]:
        """See the contract."""
        # Nothing is asked before the first page.
        pages = self._store.scan(cluster, page, kind=kind)
        while True:
            with self._observing("scan"):
                found = next(pages, None)
            if found is None:
                return
            yield found

    def read_range(
        self,
        cluster: str,
        kind: Kind,
        namespace: str,
        after: tuple[str, str],
        limit: int,
        max_bytes: int,
    ) -> tuple[Sequence[StoredObject], bool]:
        """See the contract."""
        with self._observing("read_range"):
            return self._store.read_range(cluster, kind, namespace, after, limit, max_bytes)

    def read_keys(self, cluster: str, keys: Sequence[Key]) -> Sequence[StoredObject]:
        """See the contract."""
        with self._observing("read_keys"):
            return self._store.read_keys(cluster, keys)

    def read_undo(
        self, cluster: str, identity: str, since: Revision, wanted: Callable[[Key], bool]
    ) -> Mapping[Key, StoredObject | None]:
        """See the contract."""
        with self._observing("read_undo"):
            return self._store.read_undo(cluster, identity, since, wanted)

    def get(self, cluster: str, key: Key) -> StoredObject | None:
        """See the contract."""
        with self._observing("get"):
            return self._store.get(cluster, key)

    def clusters(self) -> Sequence[str]:
        """See the contract."""
        with self._observing("clusters"):
            return self._store.clusters()

    def follow(
        self, cluster: str, identity: str, after: Revision, *, wait: float, limit: int = 1000
    ) -> Sequence[Transaction]:
        """See the contract."""
        with self._observing("follow"):
            return self._store.follow(cluster, identity, after, wait=wait, limit=limit)

    def wake(self, cluster: str) -> None:
        """See the contract."""
        self._store.wake(cluster)

    def apply(
        self,
        cluster: str,
        changes: Sequence[Change],
        *,
        precondition: Unchanged | None = None,
        identity: str = "",
        force: bool = False,
        fence: int = 0,
        timeout: float | None = None,
    ) -> Applied:
        """See the contract."""
        with self._observing("apply"):
            return self._store.apply(
                cluster,
                changes,
                precondition=precondition,
                identity=identity,
                force=force,
                fence=fence,
                timeout=timeout,
            )

    def purge(self, cluster: str, *, timeout: float | None = None) -> Applied:
        """See the contract."""
        with self._observing("purge"):
            return self._store.purge(cluster, timeout=timeout)

    def drop(self, cluster: str, *, identity: str = "") -> int | None:
        """See the contract."""
        with self._observing("drop"):
            return self._store.drop(cluster, identity=identity)

    def confirm_history(
        self,
        cluster: str,
        kinds: Collection[Kind],
        *,
        identity: str = "",
        instead_of: str = "",
    ) -> None:
        """See the contract."""
        with self._observing("confirm_history"):
            self._store.confirm_history(cluster, kinds, identity=identity, instead_of=instead_of)

    def lease(
        self,
        cluster: str,
        holder: str,
        lifetime: int,
        *,
        fence: int = 0,
        timeout: float | None = None,
    ) -> Lease:
        """See the contract."""
        with self._observing("lease"):
            return self._store.lease(cluster, holder, lifetime, fence=fence, timeout=timeout)

    def leased(self, cluster: str, *, timeout: float | None = None) -> Lease:
        """See the contract."""
        with self._observing("leased"):
            return self._store.leased(cluster, timeout=timeout)

    def ping(self) -> None:
        """See the contract."""
        with self._observing("ping"):
            self._store.ping()

    def close(self) -> None:
        """See the contract."""
        self._store.close()

    @contextmanager
    def _observing(self, operation: Operation) -> Iterator[None]:
        try:
            with self._around():
                yield
        except StoreUnavailable as failure:
            self._on_failed(operation)
            # Once when it begins to fail, not for each call meanwhile.
            if operation not in self._failing:
                self._failing.add(operation)
                cause = failure.__cause__ or "no cause is known"
                LOG.warning("store %s: %s: %s (%s)", self.address, operation, failure, cause)
            raise
        if operation in self._failing:
            self._failing.discard(operation)
            LOG.info("store %s: %s works again", self.address, operation)
