"""A small race of two servers: none breaks a constraint, and without the precondition some do."""

from __future__ import annotations

import json

import pytest

SMALL = ("race", "--callers", "6", "--servers", "2", "-o", "json")


@pytest.fixture(params=["redis", "sqlite"])
def store(request, tmp_path):
    if request.param == "redis":
        return request.getfixturevalue("redis_url")
    return f"sqlite://{tmp_path}/race.db"


def test_no_server_breaks_a_constraint(bench, store):
    completed = bench(*SMALL, "--placements", "300", "--store", store)
    value = json.loads(completed.out)
    assert (completed.code, value["breaches"]) == (0, 0), completed.err
    assert value["placements"] >= 300
    assert value["judged"] >= value["placements"]
    assert value["renewals"] > 0
    assert value["conflicts"] > 0
    assert value["ended"] > 0


def test_without_the_precondition_breaches_are_found(bench, redis_url):
    broken = ("--store", redis_url, "--break-precondition")
    completed = bench(*SMALL, "--placements", "600", *broken)
    value = json.loads(completed.out)
    assert completed.code == 1
    assert value["breaches"] > 0
    assert "breach: revision" in completed.err


@pytest.mark.faults
def test_nothing_breaks_when_a_server_is_killed_on_the_way(bench, redis_url):
    completed = bench(*SMALL, "--placements", "300", "--store", redis_url, "--kill-server")
    value = json.loads(completed.out)
    assert (completed.code, value["breaches"]) == (0, 0), completed.err
    assert value["judged"] >= value["placements"] >= 300
    assert value["placesHeldAgainAfterSeconds"] >= 0


@pytest.mark.faults
def test_nothing_breaks_when_redis_is_killed_and_comes_back(bench, redis_binary):
    program = ("--redis-server", redis_binary)
    completed = bench(*SMALL, "--placements", "300", *program, "--restart-redis")
    value = json.loads(completed.out)
    assert (completed.code, value["breaches"]) == (0, 0), completed.err
    assert value["judged"] >= value["placements"] >= 300
    assert value["placesHeldAgainAfterSeconds"] >= 0


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--kill-server", "--break-precondition"), "goes with neither"),
        (("--kill-server", "--restart-redis"), "goes with neither"),
        (("--restart-redis", "--store", "redis://127.0.0.1:1"), "of its own"),
    ],
)
def test_contradicting_options_are_refused(bench, flags, reason):
    completed = bench(*SMALL, *flags)
    assert completed.code == 2
    assert reason in completed.err
