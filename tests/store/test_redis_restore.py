"""Clusters that are made anew in Redis, where what was written so far is lost or another's."""

from __future__ import annotations

import pytest

from tests.store.backends import CLUSTER, RedisBackend, node, objects, pod, put
from tests.store.conftest import SETTINGS
from topospread.errors import StoreUnavailable


@pytest.fixture
def second(server):
    """The store of another command."""
    opened = RedisBackend(server.url).open(SETTINGS)
    yield opened
    opened.close()


@pytest.fixture
def before(redis_store):
    """A cluster that is there; its identity."""
    redis_store.apply(CLUSTER, [put(node())])
    return redis_store.head(CLUSTER).identity


def test_a_restore_whose_first_objects_expired_is_refused(redis_store, client, before):
    def slow():
        yield [put(pod("early"))]
        client.delete(*client.keys("*:restore:*"))
        yield [put(pod("late"))]

    with pytest.raises(StoreUnavailable, match="retry"):
        redis_store.restore(CLUSTER, slow(), identity=before)
    assert set(objects(redis_store)) == {node()}


def test_of_two_restores_at_once_the_later_one_is_whole(redis_store, second, before):
    def first():
        yield [put(pod("first-1"))]
        second.restore(CLUSTER, [[put(pod("second"))]], identity=before)
        yield [put(pod("first-2"))]

    with pytest.raises(StoreUnavailable, match="another restore"):
        redis_store.restore(CLUSTER, first(), identity=before)
    assert set(objects(redis_store)) == {pod("second")}


def test_a_restore_takes_nothing_from_one_that_ended_early(redis_store, second, before):
    def first():
        yield [put(pod("first-1"))]
        with pytest.raises(ValueError, match="the file ends"):
            second.restore(CLUSTER, ended_early(), identity=before)
        yield [put(pod("first-2"))]

    def ended_early():
        yield [put(pod("second"))]
        raise ValueError("the file ends")

    with pytest.raises(StoreUnavailable, match="another restore"):
        redis_store.restore(CLUSTER, first(), identity=before)
    assert set(objects(redis_store)) == {node()}
