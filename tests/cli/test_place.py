"""`topospread place` and `topospread get reservations`, against a real server."""

from __future__ import annotations

import json

import pytest

from tests.cli.manifests import CLUSTER, NOWHERE, POD

SKEW = "node(s) didn't match pod topology spread constraints"


@pytest.fixture
def loaded(topospread):
    assert topospread("apply", "-f", "-", stdin=CLUSTER).code == 0
    return topospread


def test_a_pod_gets_the_best_node_and_it_is_held(loaded):
    said = loaded("place", "-f", "-", stdin=POD)
    assert said.code == 0
    assert said.lines[0].split() == ["POD", "NODE", "HELD", "UNTIL", "NOT", "LOOKED", "AT"]
    assert said.lines[1].split()[:3] == ["Pod", "shop/web-2", "b1"]

    held = loaded("get", "reservations")
    assert held.lines[0].split() == ["NAMESPACE", "NAME", "NODE", "EXPIRES", "UID", "LABELS"]
    assert held.lines[1].split()[:3] == ["shop", "web-2", "b1"]
    assert held.lines[1].split()[4:] == ["<none>", "app=web"]


def test_a_pod_that_fits_nowhere_ends_with_1(loaded):
    said = loaded("place", "-f", "-", stdin=NOWHERE)
    assert said.code == 1
    message = f"0/3 nodes are available: 3 {SKEW} (missing required label)."
    assert f"Pod shop/web-3: {message}" in said.lines
    assert loaded("get", "reservations").err.splitlines() == ["no reservations found"]


def test_candidates_and_fit(loaded):
    one = loaded("place", "-f", "-", "--candidate", "a1", "-o", "name", stdin=POD)
    assert (one.code, one.lines) == (1, ["<none>"])
    both = ("--candidate", "a1", "--candidate", "b1", "--fit", "node", "--seed", "me", "--ttl", "5")
    assert loaded("place", "-f", "-", *both, "-o", "name", stdin=POD).lines == ["b1"]


def test_answers_for_programs(loaded, cluster):
    said = loaded("place", "-f", "-", "-o", "json", stdin=f"{POD}---\n{NOWHERE}")
    assert said.code == 1
    value = json.loads(said.out)
    fits, waits = value["items"]
    assert value["cluster"] == cluster
    assert (fits["pod"], fits["node"], fits["code"]) == ("Pod shop/web-2", "b1", "Success")
    assert fits["expiresAt"].endswith("+00:00")
    assert (waits["node"], waits["expiresAt"]) == (None, None)
    assert waits["message"].startswith("0/3 nodes are available")

    (held,) = json.loads(loaded("get", "reservation", "-o", "json").out)["items"]
    assert (held["name"], held["node"], held["expiresAt"]) == ("web-2", "b1", fits["expiresAt"])
    assert loaded("get", "reservations", "-o", "name").lines == ["reservation/shop/web-2"]


def test_a_pod_of_the_state_and_one_that_is_bound(loaded):
    loaded("apply", "-f", "-", stdin=POD)
    assert loaded("place", "shop/web-2", "-o", "name").lines == ["b1"]
    said = loaded("place", "shop/web-0")
    assert said.lines[1].split() == ["Pod", "shop/web-0", "a1", "bound", "<none>"]


def test_reservations_by_name_and_namespace(loaded):
    loaded("place", "-f", "-", stdin=POD)
    found = loaded("get", "reservations", "web-2", "-n", "shop", "-o", "name")
    assert found.lines == ["reservation/shop/web-2"]
    assert loaded("get", "reservations", "-n", "other").err.splitlines() == [
        "no reservations found"
    ]
    missing = loaded("get", "reservations", "web-2")
    assert (missing.code, missing.out) == (2, "")
    assert "nothing is held for pod default/web-2" in missing.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("place",), "say which pods"),
        (("place", "shop/nobody"), "shop/nobody"),
        (("place", "-f", "-", "--ttl", "0"), "--ttl"),
        (("place", "-f", "-", "--fit", "all"), "--fit"),
        (("get", "reservations", "-l", "app=web"), "not selected by labels"),
    ],
)
def test_mistakes_are_one_line(loaded, arguments, says):
    said = loaded(*arguments, stdin=POD)
    assert (said.code, said.out) == (2, "")
    assert says in said.err
