"""What the reflectors of one leader's term have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection

    from topospread.kubernetes.api_server import ApiServer
    from topospread.kubernetes.sink import Sink


@dataclass(frozen=True, slots=True)
class Feed:
    """From where to where a leader syncs.

    Attributes:
        api: where the cluster is read.
        sink: where it goes.
        fence: of the lease that this is done under.
        excluded_namespaces: namespaces whose objects are not synced.
        lists: acquired for as long as a kind is listed.
        needed_are_read: whether all kinds that a state is not whole without are, at this moment.
        on_listed: called after each list that was written.
        on_lost: called when a write was refused because another process holds the lease.
    """

    api: ApiServer
    sink: Sink
    fence: int
    excluded_namespaces: Collection[str]
    lists: threading.Semaphore
    needed_are_read: Callable[[], bool]
    on_listed: Callable[[], None]
    on_lost: Callable[[], None]
