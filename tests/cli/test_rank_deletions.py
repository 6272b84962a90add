"""`topospread rank-deletions`, against a real server."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.redis_server import ROOT

OBJECTS = ROOT / "examples" / "scale-down" / "objects.yaml"
ZONE = "topology.kubernetes.io/zone"
NAMES = ["d-1", "c-2", "e-1", "a-1", "c-1", "d-0", "a-0", "b-0", "e-0", "c-0"]
PROPOSED = [f"pod/shop/{name}" for name in NAMES]

WORKLOAD = f"""\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web, namespace: shop}}
spec:
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      topologySpreadConstraints:
      - maxSkew: 2
        topologyKey: {ZONE}
        whenUnsatisfiable: DoNotSchedule
        labelSelector: {{matchLabels: {{app: web}}}}
"""


@pytest.fixture
def loaded(topospread):
    assert topospread("apply", "-f", OBJECTS).code == 0
    return topospread


def test_pods_of_files_are_ordered(topospread):
    said = topospread(
        "rank-deletions",
        "-f",
        OBJECTS,
        "--constraint",
        ZONE,
        "--strategy",
        "proportional",
        "-o",
        "name",
    )
    assert (said.code, said.lines, said.err) == (0, PROPOSED, "")


def test_pods_of_the_state_are_ordered(loaded):
    asked = ("rank-deletions", "-l", "app=web", "-n", "shop", "--constraint", ZONE)
    assert loaded(*asked, "--strategy", "proportional", "-o", "name").lines == PROPOSED
    assert loaded(*asked, "--delete-count", "2", "-o", "name").lines == [
        "pod/shop/c-2",
        "pod/shop/a-1",
    ]


def test_workload_gives_selector_and_constraints(loaded):
    value = json.loads(loaded("rank-deletions", "-f", "-", "-o", "json", stdin=WORKLOAD).out)
    assert [each["pod"]["name"] for each in value["pods"]][:2] == ["c-2", "a-1"]
    (constraint,) = value["constraints"]
    spread = constraint["constraint"]
    assert (spread["topologyKey"], spread["maxSkew"]) == (ZONE, 2)
    assert constraint["domainCounts"] == [
        {"value": "zone-x", "podCount": 6},
        {"value": "zone-y", "podCount": 4},
    ]
    assert value["strategy"] == value["keepsLongest"] == "Even"
    assert value["revision"]


def test_workload_may_have_equal_hard_and_soft_constraints(loaded):
    document = yaml.safe_load(WORKLOAD)
    constraints = document["spec"]["template"]["spec"]["topologySpreadConstraints"]
    constraints.append({**constraints[0], "whenUnsatisfiable": "ScheduleAnyway"})
    said = loaded("rank-deletions", "-f", "-", "-o", "json", stdin=yaml.safe_dump(document))
    assert (said.code, len(json.loads(said.out)["constraints"])) == (0, 1)


def test_workload_selects_among_pods_of_files(topospread):
    other = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "other", "namespace": "shop", "labels": {"app": "db"}},
    }
    given = f"{WORKLOAD}---\n{OBJECTS.read_text()}---\n{yaml.safe_dump(other)}"
    value = json.loads(topospread("rank-deletions", "-f", "-", "-o", "json", stdin=given).out)
    assert (value["rankedPodCount"], "revision" in value) == (10, False)


def test_table_has_constraints_order_and_strategies(loaded):
    said = loaded(
        "rank-deletions", "-l", "app=web", "-n", "shop", "--constraint", ZONE, "--delete-count", "2"
    )
    rows = [line.split() for line in said.lines]
    assert [ZONE, "1", "2", "zone-x", "6,", "zone-y", "4"] in rows
    assert ["shop/c-2", "node-c", "8.31777", "zone-x", "1"] in [row[1:] for row in rows]
    assert ["proportional", "0", "0", "2"] in rows
    assert "keeps maxSkew longest: even (for all deletions)" in said.lines


def test_constraint_may_be_limited_to_some_domains(loaded):
    asked = (
        "rank-deletions",
        "-l",
        "app=web",
        "-n",
        "shop",
        "--constraint",
        f"{ZONE}=zone-y",
        "-o",
        "json",
    )
    value = json.loads(loaded(*asked).out)
    assert value["constraints"][0]["limitedValues"] == ["zone-y"]
    assert [each["pod"]["name"] for each in value["pods"]][:4] == ["d-1", "e-1", "d-0", "e-0"]


def test_selector_without_matches_is_noted(loaded):
    said = loaded("rank-deletions", "-l", "app=missing", "-o", "name")
    assert (said.code, said.out) == (0, "")
    assert said.err.splitlines() == ["note: no pod of namespace 'default' matches the selector"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "say which pods"),
        (("-l", "app=web", "--delete-count", "0"), "--delete-count"),
        (("-l", "app=web", "--delete-count", "-3"), "--delete-count"),
        (("-l", "app=web", "--delete-count", "99999999999"), "--delete-count"),
        (("-l", "app=web", "--strategy", "random"), "--strategy"),
        (("-l", "app=web", "--constraint", ""), "--constraint"),
        (("-l", "app=web", "--constraint", "zone="), "--constraint"),
        (("-l", "app=web", "--constraint", "a b"), "constraints[0].topologyKey"),
        (("-l", "app=web", "--constraint", ZONE, "--constraint", ZONE), f"{ZONE} is named already"),
        (("-l", "app=web=db"), "--selector"),
        (("-f", "-"), "several workloads"),
    ],
)
def test_errors_are_one_line(loaded, arguments, says):
    two = f"{WORKLOAD}---\n{WORKLOAD.replace('name: web', 'name: web2')}"
    said = loaded("rank-deletions", *arguments, stdin=two)
    assert (said.code, said.out) == (2, "")
    assert says in said.err
    assert len(said.err.splitlines()) == 1
