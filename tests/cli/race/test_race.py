"""A small race of two servers: none breaks a constraint, and without the precondition some do."""

from __future__ import annotations

import json

import pytest

SMALL = ("bench", "race", "--callers", "6", "--servers", "2", "-o", "json")


@pytest.fixture(params=["redis", "sqlite"])
def store(request, tmp_path):
    if request.param == "redis":
        return request.getfixturevalue("redis_url")
    return f"sqlite://{tmp_path}/race.db"


def test_no_server_breaks_a_constraint(bare, store):
    said = bare(*SMALL, "--placements", "300", "--store", store)
    value = json.loads(said.out)
    assert (said.code, value["breaches"]) == (0, 0), said.err
    assert value["placements"] >= 300
    assert value["judged"] >= value["placements"]
    assert value["conflicts"] > 0
    assert value["ended"] > 0


def test_without_the_precondition_breaches_are_found(bare, store):
    said = bare(*SMALL, "--placements", "600", "--store", store, "--break-precondition")
    value = json.loads(said.out)
    assert said.code == 1
    assert value["breaches"] > 0
    assert "breach: revision" in said.err


def test_over_many_namespaces(bare, redis_url):
    said = bare(*SMALL, "--placements", "200", "--namespaces", "50", "--store", redis_url)
    assert (said.code, json.loads(said.out)["breaches"]) == (0, 0), said.err
