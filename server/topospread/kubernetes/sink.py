"""Sinks: the interface between the sync and the state that it writes."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final, Protocol

from typing_extensions import override

from topospread.codec.stored import ends_reservation
from topospread.kubernetes.objects import LISTED_KINDS
from topospread.service.state.write import IncomingObjects
from topospread.store.model import Remove, WriteOutcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topospread.kube.versions import KubernetesVersion
    from topospread.kubernetes.objects import DeletedObject, ObservedObject
    from topospread.service.state.leases import Leases
    from topospread.service.state.write import StateWriter
    from topospread.store.model import Kind

LEASE_SECONDS: Final = 5.0
WRITE_SECONDS: Final = 10.0
REPLACE_SECONDS: Final = 600.0


class Sink(Protocol):
    """Writes one cluster's state, for the leader, which holds the lease.

    Every method raises Unavailable when the state cannot be reached now (try again). Writes raise
    IdentityChanged when the store has another history than before (list all kinds again), and
    Fenced when another holds the lease.
    """

    def acquire(self, seconds: float) -> int:
        """Acquire or renew the lease; returns its fencing token, 0 while another has it."""
        ...

    def release(self, fence: int) -> None:
        """Release the lease with this fencing token."""
        ...

    def replace(
        self,
        kind: Kind,
        objects: Sequence[ObservedObject],
        version: str,
        *,
        force: bool,
        fence: int,
        kubernetes_version: KubernetesVersion | None = None,
    ) -> int:
        """Make these the full content of a kind, as of a list's resourceVersion.

        Args:
            kind: of all the objects.
            objects: each once.
            version: of the list.
            force: overwrite and remove also what is newer than the list.
            fence: of the lease.
            kubernetes_version: of the API server, to be written with the list; None: not asked.

        Returns:
            How many objects of the state are newer than the list, and were left alone.

        Raises:
            InvalidRequest: an object cannot be stored.
        """
        ...

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
        ...

    def note_unknown(self, kind: Kind, reason: str, *, fence: int) -> None:
        """Note why a kind is not read, until it is listed."""
        ...


class ServiceSink(Sink):
    """Writes to this process's own store, in the name of a holder of the lease."""

    def __init__(self, writes: StateWriter, leases: Leases, cluster: str, holder: str) -> None:
        self._writes = writes
        self._leases = leases
        self._cluster = cluster
        self._holder = holder

    @override
    def acquire(self, seconds: float) -> int:
        lease = self._leases.acquire(self._cluster, self._holder, seconds, timeout=LEASE_SECONDS)
        return lease.fence if lease.holder == self._holder else 0

    @override
    def release(self, fence: int) -> None:
        self._leases.release(self._cluster, self._holder, fence, timeout=LEASE_SECONDS)

    @override
    def replace(
        self,
        kind: Kind,
        objects: Sequence[ObservedObject],
        version: str,
        *,
        force: bool,
        fence: int,
        kubernetes_version: KubernetesVersion | None = None,
    ) -> int:
        replaced = self._writes.replace(
            self._cluster,
            kind,
            [[_incoming(one) for one in objects]],
            resource_version=version,
            force=force,
            timeout=REPLACE_SECONDS,
            traced=_untraced,
            fence=fence,
            kinds=LISTED_KINDS,
            kubernetes_version=kubernetes_version,
        )
        return replaced.outcomes[WriteOutcome.IGNORED_STALE]

    @override
    def write(
        self,
        objects: Sequence[ObservedObject],
        deleted: Sequence[DeletedObject],
        *,
        observed: Mapping[Kind, str],
        fence: int,
    ) -> None:
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

    @override
    def note_unknown(self, kind: Kind, reason: str, *, fence: int) -> None:
        self._writes.apply(
            self._cluster,
            (),
            force=False,
            timeout=WRITE_SECONDS,
            traced=_untraced,
            fence=fence,
            unknown={kind: reason},
        )


def _incoming(observed: ObservedObject) -> IncomingObjects:
    # Warnings about an object are for the person who writes it, not for a sync.
    return IncomingObjects(observed.stored, ends_reservation=ends_reservation(observed.message))


def _untraced(operation: str, changes: int) -> AbstractContextManager[object]:
    """Trace nothing: a sync has no caller whose trace its writes could join."""
    del operation, changes
    return nullcontext()
