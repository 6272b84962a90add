"""`topospread place`, `release` and `get reservations`, against a real server."""

from __future__ import annotations

import json

import pytest

from tests.cli.manifests import CLUSTER, NOWHERE, POD

SKEW = "node(s) didn't match pod topology spread constraints"


@pytest.fixture
def loaded(topospread):
    assert topospread("apply", "-f", "-", stdin=CLUSTER).code == 0
    return topospread


def test_pod_gets_a_reservation_of_the_best_node(loaded):
    said = loaded("place", "-f", "-", stdin=POD)
    assert said.code == 0
    assert said.lines[0].split() == ["POD", "NODE", "HELD", "UNTIL", "NOT", "LOOKED", "AT"]
    assert said.lines[1].split()[:3] == ["Pod", "shop/web-2", "b1"]

    held = loaded("get", "reservations", "-o", "wide")
    assert held.lines[0].split() == ["NAMESPACE", "NAME", "NODE", "EXPIRES", "UID", "LABELS"]
    assert held.lines[1].split()[:3] == ["shop", "web-2", "b1"]
    assert held.lines[1].split()[4:] == ["<none>", "app=web"]


def test_a_pod_that_fits_nowhere_ends_with_1(loaded):
    said = loaded("place", "-f", "-", stdin=NOWHERE)
    assert said.code == 1
    message = f"0/3 nodes are available: 3 {SKEW} (missing required label)."
    assert f"Pod shop/web-3: {message}" in said.lines
    assert loaded("get", "reservations").err.splitlines() == ["no reservations found"]


def test_node_is_reserved_if_the_constraints_allow_it(loaded):
    refused = loaded("reserve", "a1", "-f", "-", stdin=POD)
    assert refused.code == 1
    assert f"refused:  {SKEW}" in refused.lines
    held = loaded("reserve", "b1", "-f", "-", "-o", "json", stdin=POD)
    (item,) = json.loads(held.out)["items"]
    assert (held.code, item["node"], item["verdict"]["code"]) == (0, "b1", "Success")
    assert loaded("get", "reservations", "-l", "app=web", "-o", "name").lines == [
        "reservation/shop/web-2"
    ]
    assert loaded("get", "reservations", "-l", "app=db").out == ""


def test_bound_pod_shows_its_node(loaded):
    said = loaded("reserve", "nowhere", "shop/web-0")
    assert said.code == 0
    assert "node:       a1" in said.lines
    assert "held until: bound" in said.lines


def test_candidates_and_fit_restrict_the_choice(loaded):
    one = loaded("place", "-f", "-", "--candidate", "a1", "-o", "name", stdin=POD)
    assert (one.code, one.lines) == (1, ["<none>"])
    both = ("--candidate", "a1", "--candidate", "b1", "--fit", "node", "--seed", "me", "--ttl", "5")
    assert loaded("place", "-f", "-", *both, "-o", "name", stdin=POD).lines == ["node/b1"]


def test_json_has_the_placements(loaded, cluster):
    said = loaded("place", "-f", "-", "-o", "json", stdin=f"{POD}---\n{NOWHERE}")
    assert said.code == 1
    value = json.loads(said.out)
    fits, waits = value["items"]
    assert value["cluster"] == cluster
    assert fits["pod"] == {"name": "web-2", "namespace": "shop"}
    assert (fits["kind"], fits["node"], fits["verdict"]["code"]) == ("Pod", "b1", "Success")
    assert fits["expireTime"].endswith("Z")
    assert not {"node", "expireTime"} & waits.keys()
    assert waits["message"].startswith("0/3 nodes are available")

    (held,) = json.loads(loaded("get", "reservation", "-o", "json").out)["items"]
    assert held["pod"] == {"name": "web-2", "namespace": "shop"}
    assert (held["node"], held["expireTime"]) == ("b1", fits["expireTime"])
    assert loaded("get", "reservations", "-o", "name").lines == ["reservation/shop/web-2"]


def test_pods_of_the_state_are_placed_unless_bound(loaded):
    loaded("apply", "-f", "-", stdin=POD)
    assert loaded("place", "shop/web-2", "-o", "name").lines == ["node/b1"]
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
    assert "default/web-2" in missing.err


def test_reservation_is_released_by_the_name_that_get_prints(loaded):
    loaded("place", "-f", "-", stdin=POD)
    said = loaded("release", *loaded("get", "reservations", "-o", "name").lines)
    assert (said.code, said.lines) == (0, ["reservation/shop/web-2 released"])
    assert loaded("get", "reservations").err.splitlines() == ["no reservations found"]


def test_release_prints_json_also_without_reservations(loaded, cluster):
    loaded("place", "-f", "-", stdin=POD)
    asked = ("release", "shop/web-2", "web-3", "-n", "shop", "shop/web-2")
    said = loaded(*asked, "-o", "json")
    value = json.loads(said.out)
    assert (said.code, value["cluster"]) == (2, cluster)
    assert [(each["pod"]["name"], each["released"]) for each in value["items"]] == [
        ("web-2", True),
        ("web-3", False),
    ]
    assert all(each["revision"] and each["traceId"] for each in value["items"])
    again = loaded(*asked)
    assert (again.code, again.out) == (2, "")
    assert again.err.splitlines() == [
        "reservation/shop/web-2: nothing is held",
        "reservation/shop/web-3: nothing is held",
    ]
    assert loaded(*asked, "--ignore-not-found", "-o", "name").code == 0


def test_release_of_another_uid_leaves_the_reservation(loaded):
    loaded("place", "-f", "-", stdin=POD.replace("metadata: {", "metadata: {uid: u2, "))
    assert loaded("release", "web-2", "-n", "shop", "--uid", "u1").code == 2
    said = loaded("release", "web-2", "-n", "shop", "--uid", "u2", "-o", "name")
    assert (said.code, said.lines) == (0, ["reservation/shop/web-2"])


def test_workload_is_refused(loaded):
    workload = (
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {template: {}}}"
    )
    said = loaded("place", "-f", "-", stdin=f"{POD}---\n{workload}")
    assert (said.code, said.out) == (2, "")
    assert "Deployment web: a place is held for a pod, by its name: give pods" in said.err
    # The pod before it did not get a place either.
    assert loaded("get", "reservations").err.splitlines() == ["no reservations found"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("place",), "say which pods"),
        (("release",), "NAME"),
        (("release", "deploy/web"), "write NAME, NAMESPACE/NAME or pod/NAMESPACE/NAME"),
        (("release", "shop/"), "write NAME, NAMESPACE/NAME or pod/NAMESPACE/NAME"),
        (("release", "web-1", "web-2", "--uid", "u1"), "--uid is of one pod"),
        (("place", "shop/missing"), "shop/missing"),
        (("place", "-f", "-", "--ttl", "0"), "--ttl"),
        (("place", "-f", "-", "--fit", "all"), "--fit"),
        (("get", "reservations", "x", "-l", "app=web"), "give names or --selector"),
        (("reserve", "b1"), "say which pods"),
        (("reserve", "b1", "shop/web-0", "shop/web-1"), "one node is held for one pod"),
    ],
)
def test_errors_are_one_line(loaded, arguments, says):
    said = loaded(*arguments, stdin=POD)
    assert (said.code, said.out) == (2, "")
    assert says in said.err
