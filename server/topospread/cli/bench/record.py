"""The whole log of a cluster, from revision 0 on, without a gap."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from topospread.errors import StoreUnavailable
from topospread.store.api import Revision

if TYPE_CHECKING:
    from collections.abc import Callable

    from topospread.store.api import Store, Transaction

_PAUSE: Final = 0.02


class Gap(Exception):  # noqa: N818 - named after what is the case
    """The log does not continue what was recorded."""


class Recorder:
    """Follows a cluster's log in a thread.

    Args:
        store: one of its own.
        cluster: which exists.
        take: given each transaction, in order, in the recorder's thread.
    """

    def __init__(self, store: Store, cluster: str, take: Callable[[Transaction], None]) -> None:
        self._take = take
        self._revisions: list[Revision] = []
        self._store = store
        self._cluster = cluster
        self._identity = store.head(cluster).identity
        self._until: int | None = None
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    @property
    def recorded(self) -> int:
        """How many transactions there were so far."""
        return len(self._revisions)

    @property
    def going_on(self) -> bool:
        """Whether more may be recorded: nothing is missing so far."""
        return self._thread.is_alive()

    def finish(self) -> int:
        """Go on up to the present head; returns how many transactions there were.

        Raises:
            Gap: something is missing.
        """
        head = self._store.head(self._cluster).revision
        self._until = head.number
        self._store.wake(self._cluster)
        self._thread.join()
        if self._failure is not None:
            raise Gap(f"the log could not be followed: {self._failure}") from self._failure
        if head.number and self._revisions[head.number - 1] != head:
            raise Gap(f"what was recorded is not the history that ends with {head.number}")
        return len(self._revisions)

    def _run(self) -> None:
        at = Revision()
        try:
            while self._until is None or at.number < self._until:
                try:
                    found = self._store.follow(self._cluster, self._identity, at, wait=0.2)
                except StoreUnavailable:
                    # It may come back; what it lost then is a gap.
                    time.sleep(_PAUSE)
                    continue
                for transaction in found:
                    if (
                        transaction.revision.number != at.number + 1
                        or transaction.previous_tag != at.tag
                    ):
                        raise Gap(f"revision {transaction.revision.number} follows {at.number}")
                    self._take(transaction)
                    self._revisions.append(transaction.revision)
                    at = transaction.revision
        except Exception as failure:  # noqa: BLE001 - told by finish(), in the thread that asks
            self._failure = failure
