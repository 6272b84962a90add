"""The state of a server that is called: where `topospread sync` writes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from topospread import errors
from topospread_client import errors as client_errors
from topospread_client.answers import Kind
from topospread_client.requests import Reference

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from topospread.store.api import Kind as StoredKind
    from topospread.transports.kubernetes.facts import Absence, Fact
    from topospread_client.client import Client


class ClientSink:
    """A :class:`~topospread.transports.kubernetes.sinks.Sink` over gRPC.

    Args:
        client: calls the server, for the cluster that is fed.
        holder: who we are.
    """

    def __init__(self, client: Client, holder: str) -> None:
        self._client = client
        self._holder = holder

    def hold(self, seconds: float) -> int:
        """See Sink."""
        with _as_ours():
            lease = self._client.hold(self._holder, seconds)
        return lease.fence if lease.held else 0

    def leave(self) -> None:
        """See Sink."""
        with _as_ours():
            self._client.leave(self._holder)

    def replace(
        self, kind: StoredKind, facts: Sequence[Fact], version: str, *, force: bool, fence: int
    ) -> int:
        """See Sink."""
        with _as_ours():
            replaced = self._client.replace(
                Kind(kind),
                [fact.message for fact in facts],
                resource_version=version,
                force=force,
                fence=fence,
            )
        return replaced.ignored_stale

    def write(self, facts: Sequence[Fact], absences: Sequence[Absence], *, fence: int) -> None:
        """See Sink."""
        with _as_ours():
            if facts:
                self._client.apply([fact.message for fact in facts], fence=fence)
            if absences:
                self._client.delete([_reference(gone) for gone in absences], fence=fence)


def _reference(gone: Absence) -> Reference:
    key = gone.key
    return Reference(Kind(key.kind), key.name, key.namespace, resource_version=gone.version)


@contextmanager
def _as_ours() -> Generator[None]:
    """What a call raises, as the feed knows it."""
    try:
        yield
    except client_errors.InvalidRequest as error:
        raise errors.InvalidRequest(str(error)) from error
    except client_errors.Fenced as error:
        raise errors.Fenced(str(error)) from error
    except client_errors.IdentityChanged as error:
        raise errors.IdentityChanged(str(error)) from error
    except client_errors.TopospreadClientError as error:
        # Whatever it is, it may be mended while this runs: a server that is down, full, or has not
        # been told of us yet.
        raise errors.Unavailable(f"the server: {error}") from error
