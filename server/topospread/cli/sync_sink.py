"""The state of a server that is called: where `topospread sync` writes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import topospread_client as client_errors
from topospread import errors
from topospread_client import Kind, ObjectReference, ResourceVersion

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from topospread.store.api import Kind as StoredKind
    from topospread.transports.kubernetes.facts import Absence, Fact
    from topospread_client import Client


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
            answer = self._client.acquire_lease(self._holder, seconds)
        return answer.lease.fencing_token or 0  # another's has none

    def leave(self, fence: int) -> None:
        """See Sink."""
        with _as_ours():
            self._client.release_lease(self._holder, fence)

    def replace(
        self, kind: StoredKind, facts: Sequence[Fact], version: str, *, force: bool, fence: int
    ) -> int:
        """See Sink."""
        with _as_ours():
            replaced = self._client.replace_objects(
                Kind[kind.name],
                [fact.message for fact in facts],
                resource_version=version,
                force=force,
                fencing_token=fence,
            )
        return replaced.ignored_stale_count

    def write(
        self,
        facts: Sequence[Fact],
        absences: Sequence[Absence],
        *,
        observed: Mapping[StoredKind, str],
        fence: int,
    ) -> None:
        """See Sink."""
        read = [ResourceVersion(Kind[kind.name], version) for kind, version in observed.items()]
        with _as_ours():
            if facts or not absences:
                self._client.apply_objects(
                    [fact.message for fact in facts],
                    fencing_token=fence,
                    observed=() if absences else read,
                )
            if absences:
                self._client.delete_objects(
                    [_reference(gone) for gone in absences], fencing_token=fence, observed=read
                )


def _reference(gone: Absence) -> ObjectReference:
    key = gone.key
    return ObjectReference(
        Kind[key.kind.name], key.name, key.namespace, resource_version=gone.version
    )


@contextmanager
def _as_ours() -> Generator[None]:
    """What a call raises, as the feed knows it."""
    try:
        yield
    except client_errors.InvalidRequest as error:
        raise errors.InvalidRequest(str(error)) from error
    except client_errors.Fenced as error:
        raise errors.Fenced(str(error)) from error
    except client_errors.StoreIdentityChanged as error:
        raise errors.IdentityChanged(str(error)) from error
    except client_errors.TopospreadClientError as error:
        # Whatever it is, it may be mended while this runs: a server that is down, full, or has not
        # been told of us yet.
        raise errors.Unavailable(f"the server: {error}") from error
