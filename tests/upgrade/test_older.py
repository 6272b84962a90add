"""A server of today on what an earlier version left in a store, and beside one that still runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers import Peer, served
from tests.store.backends import RedisBackend, follow_all, objects, pod, put, replay
from tests.store.conftest import SETTINGS
from tests.upgrade import stores
from tests.upgrade.descriptors import current, recorded
from tests.upgrade.story import (
    SERVED,
    Api,
    Step,
    StoryCaller,
    lasting,
    steps_known_to,
    without_changing,
)
from topospread.errors import Conflict
from topospread.replica.view import Token
from topospread.store import values
from topospread.store.model import Key, Kind, Unchanged, WriteOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from google.protobuf.descriptor_pb2 import FileDescriptorSet

CLUSTER = "prod"
AGES = replace(SETTINGS, tombstone_seconds=1e9)
"""Tombstones last until the tests are run."""

OF_NOW = {
    "PlacementService/GetReservation",
    "PlacementService/ListReservations",
    "ClusterStateService/ListClusters",
    "ClusterStateService/WatchObjects",
}
"""Methods whose answers have ended since, or need more than an older log has of deletions."""

PROGRESS = "8/"
"""Prefix of the names of objects that older versions neither write nor read."""

STORED = {
    "1": "StoredNode",
    "2": "StoredPod",
    "3": "StoredService",
    "4": "StoredReplicationController",
    "5": "StoredReplicaSet",
    "6": "StoredStatefulSet",
    "7": "StoredReservation",
}


def answered(kept: dict[str, Any]) -> list[tuple[Step, Any]]:
    """The calls that the earlier version could answer, and its answers."""
    both = zip(steps_known_to(recorded()), kept["answers"], strict=True)
    return [(step, answers) for step, answers in both if "failed" not in answers[0]]


def test_the_story_makes_each_call():
    methods = {
        f"{file.package}.{service.name}/{method.name}"
        for file in current().file
        for service in file.service
        for method in service.method
    }
    assert methods == {step.call for step in steps_known_to(current())}


# ------------------------------ stored messages


def test_fields_of_stored_messages_keep_number_name_and_type():
    """The public messages are compared by `buf breaking`, see tools/proto_rules.py."""
    now = _stored_fields(current())
    for name, fields in _stored_fields(recorded()).items():
        # What a version stores stays; of what it reads of that, something may go.
        stored = name.startswith("Stored")
        kept = {n: field for n, field in fields.items() if stored or n in now[name]}
        assert kept.items() <= now[name].items(), name


def _stored_fields(files: FileDescriptorSet) -> dict[str, dict[int, tuple[object, ...]]]:
    (stored,) = [each for each in files.file if each.name == "topospread/internal/v1/stored.proto"]
    return {
        message.name: {
            field.number: (field.name, field.type, field.label, field.type_name)
            for field in message.field
        }
        for message in stored.message_type
    }


# ------------------------------ after one another


def test_store_of_an_earlier_version_is_read_and_followed(left):
    written, log = left.content(CLUSTER)
    store = left.backend.open(SETTINGS)

    held = objects(store, CLUSTER)
    followed = follow_all(store, CLUSTER)

    assert {values.name_of(key) for key in held} == set(written)
    assert all(stored.digest for stored in held.values())
    assert replay({}, followed) == held
    assert [len(each.entries) for each in followed] == [len(entries) for entries in log]
    head = store.head(CLUSTER)
    assert Token(head.identity, head.revision).encode() == left.kept["revisions"]["@last"]
    assert store.clusters() == [CLUSTER]
    store.close()


def test_decisions_on_an_older_store_are_as_they_were(left):
    with (
        served(store=left.backend.url, **SERVED) as server,
        Peer(server.address) as peer,
    ):
        caller = StoryCaller(peer.channel, Api(recorded()))
        caller.revisions |= left.kept["revisions"]
        for step, before in answered(left.kept):
            if step.reads and step.call.removeprefix("topospread.v1.") not in OF_NOW:
                now = caller.make_calls([step])
                assert _unobserved(now) == _unobserved([without_changing(before)]), step.call


def _unobserved(answers: Any) -> Any:
    """Answers without how far the API server was read, which an older store does not note."""
    if isinstance(answers, dict):
        return {key: _unobserved(each) for key, each in answers.items() if key != "observed"}
    return [_unobserved(each) for each in answers] if isinstance(answers, list) else answers


def test_history_of_an_older_store_goes_on(left):
    store = left.backend.open(AGES)
    head, held = store.head(CLUSTER), objects(store, CLUSTER)
    (first, *_), reserved = follow_all(store, CLUSTER), Key(Kind.RESERVATION, "held", "batch-0")

    # What was deleted stays deleted, and what changed since is known.
    late = store.apply(CLUSTER, [put(pod("web-2", "shop"), "131", uid="u-web-2")])
    assert late.outcomes == (WriteOutcome.IGNORED_STALE,)
    with pytest.raises(Conflict):
        store.apply(CLUSTER, [], precondition=Unchanged(first.revision, ("shop",)))
    store.apply(CLUSTER, [], precondition=Unchanged(first.revision, ("elsewhere",)))
    # What was reserved a minute after it was written down is due.
    ended = store.purge(CLUSTER)
    assert (ended.previous, ended.ended) == (head.revision, (reserved,))
    applied = store.apply(CLUSTER, [put(pod("web-5", "shop"))])
    assert applied.revision.number == head.revision.number + 2
    news = follow_all(store, CLUSTER, after=head.revision)
    assert replay(held, news) == objects(store, CLUSTER)
    lease = store.lease(CLUSTER, "feeder-b", 1000)
    assert lease.holder == "feeder-b"
    store.apply(CLUSTER, [put(pod("web-6", "shop"))], fence=lease.fence)
    assert store.drop(CLUSTER, identity=head.identity) > 0
    store.close()


# ------------------------------ side by side


def test_values_written_now_are_read_by_an_earlier_version_as_its_own(place):
    api = Api(recorded())
    with (
        served(store=place.backend.url, **SERVED) as server,
        Peer(server.address) as peer,
    ):
        StoryCaller(peer.channel, api).make_calls(steps_known_to(recorded()))
    now, form = place.content(CLUSTER), place.form()
    place.put()

    def read(content: tuple[stores.Objects, stores.Log]) -> tuple[Any, Any]:
        objects, log = content
        plain = {name: _plain(api, name, value) for name, value in known(objects.items())}
        steps = [
            [(name, _plain(api, name[1:], value)) for name, value in known(each)] for each in log
        ]
        # A step in which it knows of nothing is none to it.
        return plain, [step for step in steps if step]

    def known(pairs: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
        for name, value in pairs:
            if not name.lstrip("=~-").startswith(PROGRESS):
                # Of a deletion it looks at the name alone.
                yield name, b"" if name.startswith("-") else value

    assert read(now) == read(place.content(CLUSTER))
    # It names no columns where it writes them.
    assert {name: form.get(name) for name in place.form()} == place.form()


def _plain(api: Api, name: str, value: bytes) -> object:
    """A stored value as the earlier version reads it, without its digest.

    Of a reservation without its id and the time that it is due.
    """
    if not value:
        return None
    kind, version = name.partition("/")[0], value[1 : 1 + value[0]]
    at = 1 + value[0] + 8
    uid = value[at + 1 : at + 1 + value[at]]
    payload = value[at + 1 + value[at] :]
    if kind == "7":
        assert payload[:13].isdigit()
        version, payload = b"", payload[13:]
    message = api.message(f"topospread.internal.v1.{STORED[kind]}").FromString(payload)
    return version, uid, lasting(message)


def test_script_of_an_earlier_version_writes_to_the_same_redis(redis_server, redis_url):
    """Its own script, called as it called it; after each call it is our turn."""
    kept = stores.kept("redis")
    store = RedisBackend(redis_url).open(SETTINGS)
    replies = []
    with redis_server.client() as client:
        script = client.register_script(kept["script"])
        for number, (keys, words) in enumerate(kept["calls"]):
            reply = script(keys=keys, args=[stores.raw(word) for word in words])
            if words[0] != "probe":
                replies.append(reply[0])
                store.apply(CLUSTER, [put(pod(f"ours-{number}", "ours"))])
        assert replay({}, follow_all(store, CLUSTER)) == objects(store, CLUSTER)
        written = stores.redis_content(client, CLUSTER)[0]
        client.flushall()
        stores.put_into_redis(client, kept["keys"])
        expected = stores.redis_content(client, CLUSTER)[0]
    store.close()
    # All is done but what it judged on a state that is not the same any more: its two places.
    assert Counter(replies) == {b"OK": len(replies) - 2, b"DIVERGED": 2}
    del expected["7/held/batch-0"]
    assert {name: v for name, v in written.items() if "/ours/" not in name} == expected


# ------------------------------ callers


def test_callers_of_an_earlier_version_are_answered_as_they_were():
    with served(**SERVED) as server, Peer(server.address) as peer:
        caller = StoryCaller(peer.channel, Api(recorded()))
        story = zip(steps_known_to(recorded()), stores.kept("sqlite")["answers"], strict=True)
        for step, before in story:
            now = caller.make_calls([step])
            assert now == [without_changing(before)] or "failed" in before[0], step.call


@pytest.mark.parametrize(
    "more",
    [b"\xf8\xff\x01\x2a", b"\xfa\xff\x01\x03new", b"\xfa\xff\x01\x00\xf8\xff\x01\x00"],
    ids=["number", "bytes", "both"],
)
def test_fields_that_only_newer_callers_know_change_no_answer(more):
    api, story = Api(current()), steps_known_to(current())
    answers = []
    for behind in (b"", more):
        with served(**SERVED) as server, Peer(server.address) as peer:
            answers.append(StoryCaller(peer.channel, api, behind).make_calls(story))
    for step, plain, extended in zip(story, *answers, strict=True):
        assert extended == plain, step.call
        assert "failed" not in plain[0], step.call
