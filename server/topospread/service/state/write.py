"""Writes of objects to the store, only into the history that is followed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from topospread.errors import (
    ClusterNotFound,
    IdentityChanged,
    InvalidRequest,
    TooLarge,
    TooManyClusters,
)
from topospread.replica.view import Token
from topospread.store.api import scan_all
from topospread.store.model import (
    MAX_APPLY_BYTES,
    MAX_CHANGES,
    Applied,
    Change,
    Key,
    Kind,
    Listed,
    Put,
    Remove,
    Revision,
    StoredObject,
    WriteOutcome,
)
from topospread.store.rules import fenced
from topospread.store.values import (
    UNREAD,
    older,
    progress,
    progress_key,
    version_record,
)
from topospread.store.values import listed as listed_kind

if TYPE_CHECKING:
    from topospread.kube.versions import KubernetesVersion
    from topospread.replica.replicas import Replicas
    from topospread.store.api import Store

WARNINGS_SHOWN: Final = 100

LONGEST_WAIT: Final = 5.0
"""Seconds that one write waits for the store, however patient its caller is: a store that hangs is
answered as if it were out of reach, and calls do not pile up behind it.
"""

TELLING: Final = 0.25
"""Seconds of a caller's time, at most, that are kept to answer why the store did not."""

SUCCESSIONS: Final = 2
"""Times that a cluster may be dropped under a write before it is refused."""

FEED_KINDS: Final = frozenset(
    {
        Kind.NODE,
        Kind.POD,
        Kind.SERVICE,
        Kind.REPLICATION_CONTROLLER,
        Kind.REPLICA_SET,
        Kind.STATEFUL_SET,
    }
)
"""What a feed lists that does not say it; these stay so when the store gets another kind."""

_NOTHING: Final[Mapping[Kind, str]] = {}

T = TypeVar("T")

Traced = Callable[[str, int], AbstractContextManager[object]]
"""Wraps a write to the store in a span: (operation, how many changes)."""


def failure_deadline(left: float) -> float:
    """Seconds to wait for the store on behalf of a caller who has so many left.

    Fewer, so that the reason reaches it, and not only that its deadline passed.
    """
    return left - min(TELLING, left / 4)


@dataclass(frozen=True, slots=True)
class IncomingObjects:
    """An object as a caller gave it, in its stored form.

    Attributes:
        warnings: what was odd about it.
        ends_reservation: it is a pod that needs no reservation any more.
    """

    object: StoredObject
    warnings: tuple[str, ...] = ()
    ends_reservation: bool = False

    @property
    def put(self) -> Put:
        """The change that writes the object."""
        return Put(self.object, ends_reservation=self.ends_reservation)


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of a write: a token that contains the write, and one outcome a change."""

    token: str
    outcomes: tuple[WriteOutcome, ...]


@dataclass(slots=True)
class ReplaceResult:
    """The result of ReplaceObjects.

    Attributes:
        outcomes: how many objects had each outcome.
        warnings: at most WARNINGS_SHOWN, and how many more there are.
    """

    token: str = ""
    outcomes: Counter[WriteOutcome] = field(default_factory=Counter)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class WriteLimits:
    """The limits of what one write may carry, and of the clusters that writes may make.

    Attributes:
        batch: objects in one ApplyObjects or DeleteObjects, or in a batch of ReplaceObjects.
        replace: objects in one ReplaceObjects: twice the pods of the largest clusters.
        clusters: past which no write makes another one.
    """

    batch: int = MAX_CHANGES
    replace: int = 500_000
    clusters: int = 1024


class StateWriter:
    """Writes to clusters of one store.

    Every write names the identity of the history that this server follows, and the store checks it
    in the same step: what callers decided by one history never lands in another.
    """

    def __init__(
        self, store: Store, histories: Replicas, limits: WriteLimits = WriteLimits()
    ) -> None:
        self._store = store
        self._histories = histories
        self.limits = limits
        self._known: set[str] = set()
        self._unlooked = 0

    def apply(
        self,
        cluster: str,
        objects: Sequence[IncomingObjects],
        *,
        force: bool,
        timeout: float,
        traced: Traced,
        fence: int = 0,
        observed: Mapping[Kind, str] = _NOTHING,
        unknown: Mapping[Kind, str] = _NOTHING,
    ) -> WriteResult:
        """Write objects in one atomic step.

        A fence that is given must be the token of the cluster's lease; so with every write here.
        What is observed, of each kind the version of the API server that was read up to, is noted
        in the same step; the highest is kept, with force the last one. So is why a kind of
        OBJECT_KINDS is unknown, until it is listed or more of it was observed.

        Raises:
            InvalidRequest: more than the limit, or one object twice; nothing was written.
            LimitExceeded: it would make one cluster too many.
            Fenced: the fence is not the lease's.
            IdentityChanged: the store has another history, which is not complete.
            StoreUnavailable: the store did not answer.
        """
        self._check_batch([incoming.object.key for incoming in objects])
        self._check_known(cluster)
        changes = [incoming.put for incoming in objects]
        with traced("apply", len(changes)):
            applied = self._write(
                cluster,
                [*changes, *progress(observed), *(listed_kind(*each) for each in unknown.items())],
                force=force,
                fence=fence,
                timeout=timeout,
            )
        if applied.identity:
            self._note(cluster)
            self._histories.note_written(cluster, applied.identity)
        return WriteResult(_token(applied), applied.outcomes[: len(changes)])

    def delete(
        self,
        cluster: str,
        removals: Sequence[Remove],
        *,
        force: bool = False,
        timeout: float,
        traced: Traced,
        fence: int = 0,
        observed: Mapping[Kind, str] = _NOTHING,
    ) -> WriteResult:
        """Remove objects in one atomic step; those that are not there are reported.

        With force also those that are newer than the version given with them.

        Raises:
            ClusterNotFound: there is no such cluster to remove them from.
            And as :meth:`apply`.
        """
        self._check_batch([removal.key for removal in removals])
        if observed:  # that alone makes a cluster; removals do not
            self._check_known(cluster)
        with traced("delete", len(removals)):
            applied = self._write(
                cluster,
                [*removals, *progress(observed)],
                force=force,
                fence=fence,
                timeout=timeout,
            )
        if removals and not applied.identity:
            raise ClusterNotFound(cluster, "is not known")
        return WriteResult(_token(applied), applied.outcomes[: len(removals)])

    def replace(
        self,
        cluster: str,
        kind: Kind,
        batches: Iterable[Sequence[IncomingObjects]],
        *,
        resource_version: str,
        force: bool,
        timeout: float,
        traced: Traced,
        fence: int = 0,
        kinds: Collection[Kind] = (),
        kubernetes_version: KubernetesVersion | None = None,
        rewrites: bool = True,
    ) -> ReplaceResult:
        """Make the stored content of one kind equal a list, in pieces: a diff that converges.

        What the list lacks is deleted only if its stored version is at most the list's, so that an
        object that was created after the list was made survives. The list's version is what the
        sync has read up to from then on. If it had read further, the list is of another history,
        as after the API server was restored from a backup: it is taken as it is, as with force.
        What a sync reads from the list's version on tells what came after it, deletions among that:
        newer tombstones are forgotten. The Kubernetes version, if it is given, is written with it.

        Without rewrites, what the store has at the list's version or an older one, but for the
        version, is left as it is: heartbeats make no write.

        It is the one write that goes into whatever history the store has. Once each of the kinds
        that its feed lists (FEED_KINDS without any) was, that one is followed.

        Raises:
            InvalidRequest: an object of another kind, or twice.
            LimitExceeded: it has too many objects, or would make one cluster too many.
            IdentityChanged: the store's history became another one while it was written.
            StoreUnavailable: some pieces may have been written; the same call again converges.
        """
        replaced = ReplaceResult()
        self._check_known(cluster)
        wanted = self._of_one_kind(kind, batches)
        for incoming in wanted.values():
            replaced.warnings.extend(incoming.warnings)
        identity = self._store.head(cluster).identity
        if resource_version and older(resource_version, self._observed(cluster, kind)):
            force = True
        removals: list[Change] = []
        same: set[Key] = set()
        for page in scan_all(self._store, cluster, kind):
            for stored in page:
                given = wanted.get(stored.key)
                if given is None:
                    removals.append(Remove(stored.key, up_to_version=resource_version))
                elif not rewrites and _holds(stored, given.object):
                    same.add(stored.key)
        changes = [each.put for key, each in wanted.items() if key not in same] + removals
        replaced.outcomes[WriteOutcome.UNCHANGED] += len(same)

        def write(
            piece: Sequence[Change], *, force: bool, listed: Listed | None = None
        ) -> Sequence[WriteOutcome]:
            nonlocal identity
            with traced("replace", len(piece)):
                applied = self._store.apply(
                    cluster,
                    piece,
                    identity=identity,
                    force=force,
                    fence=fence,
                    listed=listed,
                    timeout=min(failure_deadline(timeout), LONGEST_WAIT),
                )
            identity, replaced.token = applied.identity, _token(applied)
            return applied.outcomes

        for piece in _pieces(changes):
            replaced.outcomes.update(write(piece, force=force))
        # Of nodes, pods and workloads it is told by the lists alone, see Head.complete.
        read = (
            [listed_kind(kind, version=resource_version)]
            if resource_version or kind not in FEED_KINDS
            else []
        )
        if kubernetes_version is not None:
            read.append(version_record(kubernetes_version))
        listed = Listed(kind, frozenset(kinds) or FEED_KINDS, resource_version)
        write(read, force=True, listed=listed)
        self._note(cluster)
        if self._histories.identity(cluster) not in ("", identity):
            with suppress(IdentityChanged):  # not all kinds were listed yet
                self._histories.reconcile(cluster)
        self._histories.note_written(cluster, identity)
        _shorten(replaced.warnings)
        return replaced

    def retract(
        self, cluster: str, kind: Kind, *, timeout: float, traced: Traced, fence: int = 0
    ) -> bool:
        """Take back how far a kind was read, if that is known: it is not, until it is listed.

        Returns:
            Whether the state has the kind as it once was read.

        Raises:
            And as :meth:`apply`.
        """
        observed = self._observed(cluster, kind)
        if observed not in ("", UNREAD):
            self.apply(
                cluster,
                (),
                force=True,
                timeout=timeout,
                traced=traced,
                fence=fence,
                observed={kind: UNREAD},
            )
        return observed != ""

    def _observed(self, cluster: str, kind: Kind) -> str:
        """Up to which version a kind was read; empty where no sync says."""
        return next(
            (each.resource_version for each in self._store.get(cluster, [progress_key(kind)])), ""
        )

    def drop(self, cluster: str) -> int:
        """Forget a cluster; returns how many objects it had.

        Raises:
            ClusterNotFound: there is no such cluster.
            IdentityChanged: the store has another history, which is not complete.
        """
        count = within_history(
            self._histories,
            cluster,
            lambda identity: self._store.drop(cluster, identity=identity),
        )
        self._histories.forget(cluster)
        self._known.discard(cluster)
        if count is None:
            raise ClusterNotFound(cluster, "is not known")
        return count

    def _of_one_kind(
        self, kind: Kind, batches: Iterable[Sequence[IncomingObjects]]
    ) -> dict[Key, IncomingObjects]:
        """All objects by key; read to the end before anything is written."""
        wanted: dict[Key, IncomingObjects] = {}
        for number, batch in enumerate(batches, 1):
            for position, incoming in enumerate(batch):
                key, path = incoming.object.key, f"batch.objects[{position}]"
                if key.kind is not kind:
                    text = f"{_named(key)} is of another kind: replace one kind a call"
                    raise InvalidRequest.at(path, f"{text} (batch {number})")
                if key in wanted:
                    text = f"{_named(key)} is given twice (batch {number})"
                    raise InvalidRequest.at(path, text, "Duplicate value")
                if len(wanted) >= self.limits.replace:
                    text = f"more than {self.limits.replace} objects in one call"
                    raise TooLarge(text, "objects", self.limits.replace)
                wanted[key] = incoming
        return wanted

    def _check_batch(self, keys: Sequence[Key]) -> None:
        most = self.limits.batch
        if len(keys) > most:
            text = f"{len(keys)} in one call, at most {most}: split them, or use ReplaceObjects"
            raise InvalidRequest.at("objects", text, "Too many")
        seen: set[Key] = set()
        for position, key in enumerate(keys):
            if key in seen:
                text = f"{_named(key)} is given twice"
                raise InvalidRequest.at(f"objects[{position}]", text, "Duplicate value")
            seen.add(key)

    def _check_known(self, cluster: str) -> None:
        """See whether a cluster is there, or may be made.

        A write is one look at the store, so that the first few clusters that are new to this
        process are not looked for; there may be that many too many, and others may make some.
        """
        most = self.limits.clusters
        if cluster in self._known:
            return
        if self._unlooked < most // 64:
            self._unlooked += 1
            return
        if self._histories.identity(cluster) or self._store.head(cluster).identity:
            self._note(cluster)
            return
        there = len(self._store.clusters())
        if there >= most:
            raise TooManyClusters(
                f"there are {there} clusters already, as many as --max-clusters and the server's"
                " limit of open files allow",
                most,
            )
        self._unlooked = 0

    def _note(self, cluster: str) -> None:
        """A cluster is there: looking for that at each write would cost a round trip."""
        if len(self._known) < self.limits.clusters:
            self._known.add(cluster)

    def _write(
        self, cluster: str, changes: Sequence[Change], *, force: bool, fence: int, timeout: float
    ) -> Applied:
        """Apply changes; none makes no cluster, which then has no identity in the result."""
        patience = min(failure_deadline(timeout), LONGEST_WAIT)

        def write(identity: str) -> Applied:
            if not changes and not identity and not self._store.head(cluster).identity:
                if fence:  # checked as the store does it with each write
                    lease = self._store.lease(cluster, timeout=patience)
                    if lease.fence != fence:
                        raise fenced(cluster, lease.holder)
                return Applied(Revision(), Revision(), ())
            return self._store.apply(
                cluster, changes, identity=identity, force=force, fence=fence, timeout=patience
            )

        return within_history(self._histories, cluster, write)


def within_history(histories: Replicas, cluster: str, write: Callable[[str], T]) -> T:
    """Write into the history that is followed, or into the one that took its place.

    Args:
        histories: of all clusters.
        cluster: its name.
        write: is given the identity of the history.

    Raises:
        IdentityChanged: the store has another history, which is not complete.
        And what the write raises.
    """
    identity = histories.identity(cluster)
    for _ in range(SUCCESSIONS):
        try:
            return write(identity)
        except IdentityChanged:
            identity = histories.reconcile(cluster)
    return write(identity)


def _holds(stored: StoredObject, listed: StoredObject) -> bool:
    """Whether a list's object is stored, at the list's version of it or an older one."""
    return (
        stored.digest == listed.digest
        and stored.payload == listed.payload
        and stored.uid == listed.uid
        and not older(listed.resource_version, stored.resource_version)
    )


def _pieces(changes: Sequence[Change]) -> Iterator[Sequence[Change]]:
    """Changes in as many steps as the store wants them."""
    piece: list[Change] = []
    size = 0
    for change in changes:
        more = len(change.object.payload) if isinstance(change, Put) else 0
        if len(piece) == MAX_CHANGES or size + more > MAX_APPLY_BYTES:
            yield piece
            piece, size = [], 0
        piece.append(change)
        size += more
    if piece:
        yield piece


def _token(applied: Applied) -> str:
    return Token(applied.identity, applied.revision).encode()


def _named(key: Key) -> str:
    where = f"{key.namespace}/" if key.namespace else ""
    return f"{key.kind.name.lower()} {where}{key.name}"


def _shorten(warnings: list[str]) -> None:
    if len(warnings) > WARNINGS_SHOWN:
        more = len(warnings) - WARNINGS_SHOWN
        del warnings[WARNINGS_SHOWN:]
        warnings.append(f"… and {more} more")
