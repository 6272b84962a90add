"""The state of one replica: its index, the view that readers see, and the threads that wait."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from topospread.codec.objects import KIND_NAMES
from topospread.codec.pods import view_meta
from topospread.codec.rows import ChangeDecoder, kind_name
from topospread.errors import (
    ClusterLoading,
    CorruptValue,
    DeadlineExceeded,
    RevisionOfOtherHistory,
)
from topospread.index.builder import Builder
from topospread.index.changes import KindChange, UnreadableChange, VersionChange
from topospread.replica.timers import ExpiryQueue, StoreHealth
from topospread.replica.view import RevisionTags, Token, View
from topospread.spread.settings import NEWEST, known_version, known_versions
from topospread.store.model import Key, Kind, LogEntry, StoredObject
from topospread.store.values import (
    KUBERNETES_VERSION,
    Observed,
    kind_of_progress,
    observed_version,
    recorded_version,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from topospread.cache import Budget
    from topospread.errors import TopospreadError
    from topospread.index.changes import IndexChange
    from topospread.index.pods import PodMembers
    from topospread.index.snapshot import Snapshot
    from topospread.kube.versions import KubernetesVersion
    from topospread.spread.topology import GroupKey
    from topospread.store.api import Reader
    from topospread.store.model import Applied, Revision, Transaction

LOG: Final = logging.getLogger(__name__)

LOCAL_WRITES: Final = 1024
"""Writes of this process that are kept until the view reaches up to them."""


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """Options of a replica.

    Attributes:
        coalesce: seconds for which changes are gathered while no caller waits for a revision. Each
            time costs decisions what they remember of the selectors concerned; a write is seen
            elsewhere within 30 ms.
        max_groups: distinct (namespace, selector) pairs that are kept: several times the apps of a
            large cluster; each costs memory and work at each change.
        max_group_idle: seconds without a use after which a group is dropped.
        group_budget: bytes of the counts of each cluster.
        follows: in a thread of its own. Else the first caller loads the cluster, and what comes
            later is seen after catch_up().
        end_due: ends the reservations of a cluster, with this identity, that are due in the store;
            None where none can be.
        version: of clusters that report none, of the known ones.
    """

    coalesce: float = 0.02
    max_groups: int = 4096
    max_group_idle: float = 600.0
    group_budget: Budget | None = None
    follows: bool = True
    end_due: Callable[[str, str], Applied] | None = None
    version: KubernetesVersion = NEWEST


class Decoder:
    """Decodes for one cluster, and remembers which values could not be read. One thread's.

    Attributes:
        corrupt: keys of values that are left out: they count as absent until they are written anew.
        expiries: reservations by when they are due.
        observed: how far the API server was read, by kind.
    """

    def __init__(self, cluster: str) -> None:
        self.corrupt: set[Key] = set()
        self.expiries = ExpiryQueue()
        self.observed: Observed = ()
        self._cluster = cluster
        self._changes = ChangeDecoder()
        self._version: KubernetesVersion | None = None

    def objects(self, stored: Iterable[StoredObject]) -> Iterator[IndexChange]:
        """The changes that bring stored objects into an empty index."""
        for item in stored:
            yield from self._one(item.key, item)

    def entries(self, entries: Iterable[LogEntry]) -> Iterator[IndexChange]:
        """The changes of log entries, in order."""
        for entry in entries:
            yield from self._one(entry.key, entry.object)

    def _one(self, key: Key, stored: StoredObject | None) -> Iterator[IndexChange]:
        if key.kind is Kind.PROGRESS and key.name == KUBERNETES_VERSION:
            version = None if stored is None else recorded_version(stored)
            self._warn_of_unknown(version)
            yield VersionChange(version)
            return
        if key.kind is Kind.PROGRESS:
            read = None if stored is None else kind_of_progress(stored)
            if stored is None or read is None:
                return
            kind, unknown = read
            observed = {each: at for each, at in self.observed if each is not kind}
            if (found := observed_version(stored)) is not None:
                observed[kind] = found[1]
            self.observed = tuple(sorted(observed.items()))
            if kind in KIND_NAMES:
                yield KindChange(KIND_NAMES[kind], unknown)
            return
        if key.kind is Kind.RESERVATION:
            self.expiries.update(key, 0 if stored is None else stored.expires_at)
        try:
            if stored is not None and not stored.digest:
                raise CorruptValue("the stored value has no readable header")
            change = self._changes.change(key, stored)
        except CorruptValue as cause:
            yield from self._left_out(key, str(cause))
        except Exception as cause:
            # Whatever is wrong with one object, the others are followed.
            if key not in self.corrupt:
                LOG.exception("cluster %s: cannot take in %s", self._cluster, key)
            yield from self._left_out(key, f"{type(cause).__name__}: {cause}"[:200])
        else:
            if key in self.corrupt:
                self.corrupt.discard(key)
                yield UnreadableChange(_named(key), unreadable=False)
            yield change

    def _left_out(self, key: Key, cause: str) -> Iterator[IndexChange]:
        if key not in self.corrupt:
            name = f"{key.kind.name} {key.namespace}/{key.name}"
            LOG.error("cluster %s: %s is left out: %s", self._cluster, name, cause)
            self.corrupt.add(key)
            yield UnreadableChange(_named(key), unreadable=True)
        yield self._changes.change(key, None)

    def _warn_of_unknown(self, version: KubernetesVersion | None) -> None:
        """Warn once of a version that is judged by another one's rules."""
        if version in (None, self._version):
            return
        self._version = version
        if (known := known_version(version)) != version:
            LOG.warning(
                "cluster %s: Kubernetes %s is not known here (%s are): judged by the rules of %s",
                self._cluster,
                version,
                known_versions(),
                known,
            )


def _named(key: Key) -> tuple[str, str, str]:
    """The name of an object as answers have it."""
    return kind_name(key.kind), key.namespace, key.name


class ReplicaState:
    """The index and the published view of one cluster.

    Methods that change what is published hold the condition, so that the view's revision and the
    builder's content belong together.

    Attributes:
        view: the newest published state; None until the first load is done.
        identity_changed: whether the store has another history than the one in the view.
        gone: whether the cluster was deleted; nothing follows it any more.
        loaded: whether the builder holds the history that is followed.
        failure: why the first load failed last.
        stopping: set when the replica is to end.
        waiter_present: set by a caller that begins to wait.
        health: when the store last answered.
        decoder: of the history that is followed.
        revision_tags: of the last transactions that were folded, of the view or of its successor.
    """

    def __init__(self, cluster: str, reader: Reader, options: ReplicaOptions) -> None:
        self.cluster = cluster
        self.view: View | None = None
        self.identity_changed = False
        self.gone = False
        self.loaded = False
        self.failure: TopospreadError | None = None
        self.stopping = threading.Event()
        self.waiter_present = threading.Event()
        self.health = StoreHealth()
        self._reader = reader
        self._options = options
        self.decoder = Decoder(cluster)
        self.revision_tags = RevisionTags(cluster, reader)
        self._checked: tuple[View, RevisionTags] | None = None
        self._builder = self.new_builder()
        self._local_writes: dict[int, Transaction] = {}
        self._rebuilds = 0
        self._changed = threading.Condition()
        self._waiting = 0

    # ------------------------------ reading

    @property
    def corrupt(self) -> int:
        """Number of stored values that could not be read and were left out."""
        return len(self.decoder.corrupt)

    @property
    def has_waiters(self) -> bool:
        """Whether a caller waits for a change of what is published."""
        return self._waiting > 0

    def is_counted(self, namespace: str, name: str) -> bool:
        """Whether a pod is bound and counts; may be a little newer than the view."""
        return self._builder.is_counted(namespace, name)

    def lacks_own_write(self, scope: str) -> bool:
        """Whether the view lacks a write of this process to a scope (see Key.scope)."""
        local = self._local_writes
        return bool(local) and any(
            entry.key.scope == scope for own in list(local.values()) for entry in own.entries
        )

    def current_view(self) -> View:
        """The newest view."""
        view = self.view
        if view is None:
            raise ClusterLoading(f"cluster {self.cluster!r} is still being loaded: try again")
        return view

    def checked_view(self) -> tuple[View, RevisionTags]:
        """The newest view, and the tags that its own history's revisions are checked by."""
        checked = self._checked
        return (self.current_view(), self.revision_tags) if checked is None else checked

    def next_due(self) -> int:
        """The time the next reservation is due at, in milliseconds since 1970; 0 when none is."""
        with self._changed:
            return self.decoder.expiries.next_due()

    # ------------------------------ groups

    def ensure_counted(self, groups: Iterable[GroupKey]) -> View:
        """Count groups that the view lacks; returns a view that has them."""
        with self._changed:
            return self._show_groups(self._builder.ensure_counted(groups))

    def members(self) -> PodMembers:
        """The pods by class, as of the newest index."""
        return self._builder.members()

    def view_and_members(self) -> tuple[View, PodMembers]:
        """The newest view, and its pods by class.

        Raises:
            Unavailable: the cluster is being loaded anew.
        """
        with self._changed:
            view = self.current_view()
            if self._builder.snapshot.origin is not view.snapshot.origin:
                raise ClusterLoading(f"cluster {self.cluster!r} is being loaded anew: try again")
            return view, self._builder.members()

    def drop_idle(self, idle_before: Callable[[int], int]) -> None:
        """Drop groups that were not asked for lately.

        Args:
            idle_before: maps the newest snapshot's sequence to the one before which the last use
                of a group is too long ago.
        """
        with self._changed:
            builder = self._builder
            self._show_groups(builder.drop_idle(idle_before(builder.snapshot.sequence)))

    def _show_groups(self, snapshot: Snapshot) -> View:
        """Publish other groups of the same state; the condition is held."""
        view = replace(self.current_view(), snapshot=snapshot)
        self._show(view)
        return view

    def _show(self, view: View) -> None:
        self.view = view
        if self._checked is None or self.loaded:
            self._checked = view, self.revision_tags
        else:  # the tags are of the history that is being loaded
            self._checked = view, self._checked[1]

    # ------------------------------ folding

    def new_builder(self) -> Builder:
        """An empty index."""
        options = self._options
        return Builder(
            max_groups=options.max_groups,
            budget=options.group_budget,
            yield_control=yield_gil,
            version=options.version,
        )

    def start_decoding_anew(self, revision: Revision) -> None:
        """Forget what was decoded, for a load that begins at a revision."""
        self.decoder = Decoder(self.cluster)
        # Others than the view's, whose revisions are still checked while the next one is loaded.
        self.revision_tags = RevisionTags(self.cluster, self._reader)
        self.revision_tags.begin(revision)

    def fold(
        self, builder: Builder, transactions: Iterable[Transaction], revision: Revision
    ) -> Revision:
        """Fold transactions into a builder that has come up to a revision; returns the last one."""
        changes: list[IndexChange] = []
        for transaction in transactions:
            changes.extend(self.decoder.entries(transaction.entries))
            revision = transaction.revision
            self.revision_tags.add(revision)
        if changes:
            builder.fold(changes)
        return revision

    def fold_and_publish(
        self, transactions: Iterable[Transaction], *, of: str | None = None
    ) -> None:
        """Publish the state after these transactions and after local writes that follow them.

        Transactions that the view has already are passed over.

        Args:
            transactions: in the order of the log.
            of: identity of their history, if it may not be the one that is loaded.

        Raises:
            RevisionUnavailable: they do not continue what is loaded, or it is being loaded anew.
        """
        with self._changed:
            view = self.current_view()
            if of is not None and not (self.loaded and view.identity == of):
                raise RevisionOfOtherHistory("the state is being loaded anew")
            revision, lacking = view.revision, []
            for transaction in transactions:
                if transaction.revision.number > revision.number:
                    if transaction.previous_tag != revision.tag:
                        raise RevisionOfOtherHistory("the log does not continue what is loaded")
                    lacking.append(transaction)
                    revision = transaction.revision
            local = self._local_writes
            while (own := local.get(revision.number + 1)) and own.previous_tag == revision.tag:
                lacking.append(own)
                revision = own.revision
            self._local_writes = {n: own for n, own in local.items() if n > revision.number}
            if lacking:
                self.fold(self._builder, lacking, view.revision)
                self.publish(self._builder, view.identity, revision)

    def apply_local(self, identity: str, transaction: Transaction) -> None:
        """Publish a write of this process at once, if the view reaches up to it.

        Otherwise it is kept until what came between is there.
        """
        with self._changed:
            view = self.view
            if not self.loaded or view is None or view.identity != identity:
                return
            if len(self._local_writes) >= LOCAL_WRITES:
                self._local_writes.clear()
            self._local_writes[transaction.revision.number] = transaction
            self.fold_and_publish(())

    # ------------------------------ publishing

    def publish(self, builder: Builder, identity: str, revision: Revision) -> None:
        """Show readers what a builder holds, as the state at a revision."""
        with self._changed:
            token = Token(identity, revision).encode()
            self._builder = builder
            self.loaded = True
            observed = self.decoder.observed
            now = time.monotonic()
            meta = view_meta(token, observed, builder.snapshot.version)
            self._show(View(builder.snapshot, identity, revision, token, now, observed, meta))
            self.failure = None
            self.identity_changed = False
            self._changed.notify_all()

    def begin_rebuild(self) -> None:
        """Have the index built anew, aside; callers that wait for a revision get an error."""
        with self._changed:
            self.loaded = False
            self._local_writes = {}
            self._rebuilds += 1
            self._changed.notify_all()

    def fail(self, cause: TopospreadError) -> None:
        """Note why nothing could be loaded."""
        with self._changed:
            self.failure = cause.again()
            self._changed.notify_all()

    def end(self, cause: TopospreadError) -> None:
        """Note that there is nothing to follow any more."""
        with self._changed:
            # At once, or callers that wait would see a replica that stopped for no reason.
            self.gone = True
            self.stopping.set()
            self.fail(cause)

    def wake_waiters(self) -> None:
        """Let callers that wait look again."""
        with self._changed:
            self._changed.notify_all()

    # ------------------------------ waiting

    def wait_until(
        self, reached: Callable[[], bool], deadline: float, what: str = "the wanted revision"
    ) -> None:
        """Wait for a change of what is published.

        Args:
            reached: looked at after each change, under the condition.
            deadline: on the monotonic clock.
            what: is waited for, for the error's text.

        Raises:
            DeadlineExceeded: it was not reached in time.
            RevisionUnavailable: the cluster was deleted.
            Unavailable: the index is being built anew, or the replica stopped.
        """
        with self._changed:
            self._waiting += 1
            rebuilds = self._rebuilds
            try:
                self.waiter_present.set()
                while not reached():
                    if self.gone:
                        raise RevisionOfOtherHistory(
                            "the cluster was deleted: read again without it"
                        )
                    if self.stopping.is_set():
                        raise ClusterLoading("the server stopped following the cluster: try again")
                    if rebuilds != self._rebuilds:
                        raise ClusterLoading("the state is being loaded anew: try again")
                    left = deadline - time.monotonic()
                    if left <= 0:
                        raise DeadlineExceeded(
                            f"cluster {self.cluster!r} did not reach {what} in time"
                        )
                    self._changed.wait(left)
            finally:
                self._waiting -= 1


def yield_gil() -> None:
    """Give other threads the interpreter."""
    time.sleep(0)
