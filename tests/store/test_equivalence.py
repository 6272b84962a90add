"""All backends do the same for any sequence of writes: outcomes, refusals, streams, objects."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.store.backends import (
    RedisBackend,
    SqliteBackend,
    ToyBackend,
    end_due,
    follow_all,
    objects,
    oldest,
)
from topospread.errors import TopospreadError
from topospread.store.model import (
    Key,
    Kind,
    Listed,
    Put,
    Remove,
    Revision,
    StoredObject,
    StoreSettings,
    Unchanged,
)

# Few names, versions, uids and digests, so that changes meet each other.
names = st.sampled_from(["a", "b"])
keys = st.one_of(
    st.builds(
        lambda kind, name: Key(kind, "", name),
        st.sampled_from([Kind.NODE, Kind.PERSISTENT_VOLUME, Kind.NAMESPACE]),
        names,
    ),
    st.builds(
        Key,
        st.sampled_from(
            [
                Kind.POD,
                Kind.SERVICE,
                Kind.STATEFUL_SET,
                Kind.RESERVATION,
                Kind.PERSISTENT_VOLUME_CLAIM,
            ]
        ),
        st.sampled_from(["x", "nodes"]),
        names,
    ),
)
versions = st.sampled_from(["", "0", "1", "2", "9", "10", str(2**53), str(2**53 + 1), "9" * 30])
uids = st.sampled_from(["", "u", "v"])


def _put(key, payload, digest, version, uid, ends, lifetime):
    stored = StoredObject(key, payload, digest, version, uid)
    if key.kind is Kind.POD:
        return Put(stored, ends_reservation=ends)
    return Put(stored, lifetime=lifetime if key.kind is Kind.RESERVATION else None)


puts = st.builds(
    _put,
    keys,
    st.sampled_from([b"", b"\x00\xff", b"spec"]),
    st.sampled_from([b"AAAAAAAA", b"\x00" * 8]),
    versions,
    uids,
    st.booleans(),
    # Due at once, or not while the test lasts: backends have clocks of their own.
    st.sampled_from([None, 0, 3_600_000]),
)
removes = st.builds(Remove, keys, uids, versions)


def _key(change):
    return change.object.key if isinstance(change, Put) else change.key


def _named(change):
    """What may come once in an apply: an object, or a pod and what is reserved for it."""
    key = _key(change)
    return (Kind.POD, *_name(key)) if key.kind is Kind.RESERVATION else (key.kind, *_name(key))


def _name(key):
    return key.namespace, key.name


def _dated(stored):
    """When it is due, as far as clocks agree."""
    return stored if stored is None else replace(stored, expires_at=bool(stored.expires_at))


def _undated(transaction):
    entries = [replace(entry, object=_dated(entry.object)) for entry in transaction.entries]
    return transaction.revision.number, entries


changes = st.lists(puts | removes, max_size=6, unique_by=_named)
# How many revisions to go back for the precondition, and whether its tag is the right one.
preconditions = st.none() | st.tuples(
    st.integers(-1, 12),
    st.booleans(),
    st.lists(
        st.sampled_from(["x", "nodes", "nodes/", "volumes/", "namespaces/", "devices/"]),
        unique=True,
    ),
)
applies = st.tuples(st.just("apply"), changes, preconditions, st.booleans())
follows = st.tuples(st.just("follow"), st.integers(-1, 12), st.booleans())
few = st.sampled_from([Kind.NODE, Kind.POD])
lists = st.tuples(st.just("list"), few, st.frozensets(few, min_size=1), versions)
rare = st.one_of(lists, st.just(("end_due",)), st.just(("drop",)))
steps = st.one_of(applies, applies, applies, follows, rare)

# Few enough changes in the log for trimming. Tombstones stay: which of them are the oldest is seen
# by each backend's own clock.
SMALL = StoreSettings(timeout=20.0, connect_timeout=20.0, log_limit=8)
_clusters = count()


@pytest.fixture(scope="module")
def pair(redis_servers):
    opened = [SqliteBackend("memory:").open(SMALL), ToyBackend().open(SMALL)]
    opened += [RedisBackend(server.url).open(SMALL) for server in redis_servers.values()]
    yield opened
    for store in opened:
        store.close()


class Run:
    """One store, driven by steps; what it answered is comparable with another's answers."""

    def __init__(self, store, cluster):
        self.store = store
        self.cluster = cluster
        self.known = [Revision()]

    def revision(self, back, right):
        """A revision seen earlier; one from the future for -1; with a wrong tag on request."""
        if back < 0:
            return Revision(self.known[-1].number + 1, "x")
        found = self.known[max(0, len(self.known) - 1 - back)]
        return found if right else Revision(found.number, "wrong")

    def answer(self, step):
        try:
            return getattr(self, step[0])(*step[1:])
        except TopospreadError as refusal:
            return type(refusal), str(refusal)

    def apply(self, wanted, precondition, force):
        condition = None
        if precondition is not None:
            back, right, scopes = precondition
            condition = Unchanged(self.revision(back, right), tuple(scopes))
        applied = self.store.apply(self.cluster, wanted, precondition=condition, force=force)
        assert applied.previous == self.known[-1]
        if applied.revision != applied.previous:
            self.known.append(applied.revision)
        answered = applied.outcomes, applied.ended, bool(applied.at)
        return *answered, applied.revision.number, applied.previous.number

    def end_due(self):
        return self._ended(end_due(self.store, self.cluster))

    def list(self, kind, kinds, version):
        applied = self.store.apply(self.cluster, (), listed=Listed(kind, kinds, version))
        return self._ended(applied), self.store.head(self.cluster).complete

    def _ended(self, applied):
        if applied.revision != applied.previous:
            self.known.append(applied.revision)
        return applied.ended, bool(applied.at), applied.revision.number

    def follow(self, back, right):
        identity = self.store.head(self.cluster).identity
        after = self.revision(back, right)
        found = self.store.follow(self.cluster, identity, after, wait=0)
        return list(map(_undated, found))

    def drop(self):
        self.known = [Revision()]
        return self.store.drop(self.cluster)

    def state(self):
        """All there is to see at rest."""
        head = self.store.head(self.cluster)
        assert head.revision == self.known[-1]
        stream = []
        if head.identity:
            first = oldest(self.store, self.known, self.cluster)
            at = next(known for known in self.known if known.number == first)
            stream = follow_all(self.store, self.cluster, after=at)
            for transaction in stream:
                assert transaction.previous_tag == at.tag
                at = transaction.revision
            assert at == head.revision
        found = objects(self.store, self.cluster)
        return (
            list(map(_undated, stream)),
            {key: _dated(found[key]) for key in sorted(found, key=repr)},
            bool(head.identity),
            head.complete,
            len(head.replaced),
        )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(steps, max_size=25))
def test_backends_agree(pair, plan):
    cluster = f"agree-{next(_clusters)}"
    runs = [Run(store, cluster) for store in pair]
    try:
        for step in plan:
            first, *others = [run.answer(step) for run in runs]
            assert others == [first] * len(others)
        first, *others = [run.state() for run in runs]
        assert others == [first] * len(others)
    finally:
        for run in runs:
            run.drop()
