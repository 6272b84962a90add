"""Where a sync writes: this server's store, in the name of a holder of the cluster's lease."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

from topospread.codec.stored import ends_reservation
from topospread.service.state.write import IncomingObjects
from topospread.store.model import Remove

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topospread.kube.versions import KubernetesVersion
    from topospread.kubernetes.objects import DeletedObject, ObservedObject
    from topospread.service.state.write import StateWriter
    from topospread.store.api import Writer
    from topospread.store.model import Kind, Lease

LEASE_SECONDS: Final = 5.0
WRITE_SECONDS: Final = 10.0
REPLACE_SECONDS: Final = 600.0


class Sink:
    """Writes one cluster's state, for the leader, which holds the lease.

    Every method raises Unavailable when the store cannot be reached now (try again). Writes raise
    IdentityChanged when the store has another history than before (list all kinds again), and
    Fenced when another holds the lease.

    Args:
        writes: the use cases.
        store: has the lease.
        cluster: the name that it has in the state.
        holder: who asks for the lease: unique among all that ever do.
    """

    def __init__(self, writes: StateWriter, store: Writer, cluster: str, holder: str) -> None:
        self._writes = writes
        self._store = store
        self._cluster = cluster
        self._holder = holder

    def acquire(self, seconds: float) -> int:
        """Acquire or renew the lease; returns its fencing token, 0 while another has it."""
        lease = self._lease(round(seconds * 1000))
        return lease.fence if lease.holder == self._holder else 0

    def release(self) -> None:
        """Release the lease, if it is still one's own."""
        self._lease(0)

    def _lease(self, lifetime: int) -> Lease:
        return self._store.acquire(self._cluster, self._holder, lifetime, timeout=LEASE_SECONDS)

    def replace(
        self,
        kind: Kind,
        objects: Sequence[ObservedObject],
        version: str,
        *,
        fence: int,
        kubernetes_version: KubernetesVersion | None = None,
    ) -> None:
        """Make these the full content of a kind, as of a list's resourceVersion.

        A list is the newest there is: what is newer in the state comes from before the API server
        was restored, or the watch tells it again.

        Args:
            kind: of all the objects.
            objects: each once.
            version: of the list.
            fence: of the lease.
            kubernetes_version: of the API server, to be written with the list; None: not asked.

        Raises:
            InvalidRequest: an object cannot be stored.
        """
        self._writes.replace(
            self._cluster,
            kind,
            [[_incoming(one) for one in objects]],
            resource_version=version,
            force=True,
            timeout=REPLACE_SECONDS,
            traced=_untraced,
            fence=fence,
            kubernetes_version=kubernetes_version,
            rewrites=False,
        )

    def write(
        self,
        objects: Sequence[ObservedObject],
        deleted: Sequence[DeletedObject],
        *,
        observed: Mapping[Kind, str],
        fence: int,
    ) -> None:
        """Write changes, at most 500 of each sort, each object once.

        The last transaction also stores ``observed``: the resourceVersion read by then, by kind.

        Raises:
            InvalidRequest: an object cannot be stored; none was written.
        """
        ends = time.monotonic() + WRITE_SECONDS
        if objects or not deleted:
            self._writes.apply(
                self._cluster,
                [_incoming(one) for one in objects],
                force=False,
                timeout=ends - time.monotonic(),
                traced=_untraced,
                fence=fence,
                observed={} if deleted else observed,
            )
        if deleted:
            self._writes.delete(
                self._cluster,
                [Remove(gone.key, up_to_version=gone.version) for gone in deleted],
                timeout=max(1.0, ends - time.monotonic()),
                traced=_untraced,
                fence=fence,
                observed=observed,
            )

    def note_unknown(self, kind: Kind, reason: str, *, fence: int) -> None:
        """Note why a kind is not read, until it is listed."""
        self._writes.apply(
            self._cluster,
            (),
            force=False,
            timeout=WRITE_SECONDS,
            traced=_untraced,
            fence=fence,
            unknown={kind: reason},
        )

    def retract(self, kind: Kind, *, fence: int) -> bool:
        """Take back how far a kind was read, until it is listed: nobody knows what came since.

        Returns:
            Whether the state has the kind as it once was read.
        """
        return self._writes.retract(
            self._cluster, kind, timeout=WRITE_SECONDS, traced=_untraced, fence=fence
        )


def _incoming(observed: ObservedObject) -> IncomingObjects:
    # Warnings about an object are for the person who writes it, not for a sync.
    return IncomingObjects(observed.stored, ends_reservation=ends_reservation(observed.message))


def _untraced(operation: str, changes: int) -> AbstractContextManager[object]:
    """Trace nothing: a sync has no caller whose trace its writes could join."""
    del operation, changes
    return nullcontext()
