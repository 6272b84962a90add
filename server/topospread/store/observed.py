"""A wrapper around any backend that reports failures and the threads that wait for the store."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, cast

from topospread.errors import StoreUnavailable

if TYPE_CHECKING:
    from topospread.store.api import Store

LOG: Final = logging.getLogger(__name__)

OPERATIONS: Final = (
    *("head", "scan", "get", "clusters", "follow", "lease"),
    *("apply", "drop", "acquire", "ping"),
)
"""The methods that ask the store; failures are reported by their names."""

Around = Callable[[], AbstractContextManager[None]]
"""Entered by the thread that calls the store, for as long as it waits."""


class _ObservedStore:
    """The methods of a store; those of OPERATIONS are observed."""

    def __init__(self, store: Store, on_failed: Callable[[str], None], around: Around) -> None:
        self._store = store
        self._on_failed = on_failed
        self._around = around
        self._failing: set[str] = set()
        for name in OPERATIONS:
            setattr(self, name, self._observed(name))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _observed(self, operation: str) -> Callable[..., Any]:
        method = getattr(self._store, operation)

        @wraps(method)
        def observed(*args: Any, **options: Any) -> Any:
            try:
                with self._around():
                    result = method(*args, **options)
            except StoreUnavailable as failure:
                self._failed(operation, failure)
                raise
            if operation in self._failing:
                self._failing.discard(operation)
                LOG.info("store %s: %s works again", self._store.address, operation)
            return result

        return observed

    def _failed(self, operation: str, failure: StoreUnavailable) -> None:
        self._on_failed(operation)
        # Once when it begins to fail, not for each call meanwhile.
        if operation not in self._failing:
            self._failing.add(operation)
            cause = failure.__cause__ or "no cause is known"
            LOG.warning("store %s: %s: %s (%s)", self._store.address, operation, failure, cause)


def observed_store(store: Store, on_failed: Callable[[str], None], around: Around) -> Store:
    """A store that reports what another one does.

    Args:
        store: does the work.
        on_failed: called with the name of each operation that raised StoreUnavailable.
        around: see :data:`Around`.
    """
    return cast("Store", _ObservedStore(store, on_failed, around))
