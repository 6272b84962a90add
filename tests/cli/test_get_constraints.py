"""`topospread get constraints`: those in force, and one of them described."""

from __future__ import annotations

import json
import re

import pytest

from tests.cli.conftest import check_document
from tests.cli.spreads import NODES, STATES, ZONE, pod
from topospread.cli.errors import BAD_INPUT, DONE


@pytest.fixture
def loaded(topospread):
    assert topospread("apply", "-f", "-", stdin=STATES).code == DONE
    return topospread


def name_of(command, owner):
    """Name of the constraint of an owner."""
    (name,) = command("report", owner, "-o", "name").lines
    return str(name)


@pytest.mark.parametrize("word", ["constraints", "constraint"])
def test_constraints_are_listed_by_name_with_their_ids(loaded, word):
    said = loaded("get", word)
    columns = "NAMESPACE ID OWNER KEY WHEN SKEW STATE PENDING BLOCKED"
    assert said.lines[0].split() == columns.split()
    rows = [line.split() for line in said.lines[1:]]
    order = ["StatefulSet/db", "DaemonSet/log", "StatefulSet/cart", "StatefulSet/web"]
    assert [row[2] for row in rows] == order
    assert f"constraint/{rows[-1][1]}" == name_of(loaded, "web")
    assert loaded("get", word, "--no-headers").lines == said.lines[1:]
    assert loaded("get", word, "-o", "name").lines == [f"constraint/{row[1]}" for row in rows]


def test_lists_are_of_a_namespace_or_of_labels(loaded):
    assert len(loaded("get", "constraints", "-n", "data", "--no-headers").lines) == 1
    assert len(loaded("get", "constraints", "-l", "app=web", "-A", "--no-headers").lines) == 1
    none = loaded("get", "constraints", "-n", "missing")
    text = "no constraints in namespace missing: -A shows those of all\n"
    assert (none.code, none.out, none.err) == (DONE, "", text)
    assert loaded("get", "constraints", "-o", "wide").lines[0].split()[-1] == "MESSAGE"
    listed = json.loads(loaded("get", "constraints", "-o", "json").out)
    assert (listed["kind"], len(listed["items"])) == ("ConstraintList", 4)


def test_one_constraint_is_described_with_domains_nodes_and_pods(loaded):
    assert loaded("reserve", "b1", "-f", "-", stdin=pod("web", 9)).code == DONE
    lines = loaded("get", name_of(loaded, "web")).lines
    text = "\n".join(lines)
    assert lines[0] == f"{ZONE} (DoNotSchedule, maxSkew 1)"
    assert "of:      shop StatefulSet/web" in lines
    assert "counts:  pods app=web" in lines
    assert any(line.startswith("state:   violated: skew 2 is above maxSkew 1") for line in lines)
    assert "skew:    2, with the minimum 1" in lines
    assert "domains: 1 of 2 eligible ones allow the next replica; 2 in all" in lines
    assert re.search(r"^b +1 \(1 reserved\) .* open +holds the minimum$", text, re.MULTILINE)
    assert re.search(r"^a +3 .* closed +skew 3 > maxSkew 1$", text, re.MULTILINE)
    assert re.search(r"^b1 +b +1 +1 +yes +yes$", text, re.MULTILINE)
    assert re.search(r"^a1 +a +2 +0 +yes +yes$", text, re.MULTILINE)
    assert re.search(r"^pod/shop/web-0 +a1 +a$", text, re.MULTILINE)


def test_description_has_findings_and_pods_that_wait(loaded):
    log = loaded("get", name_of(loaded, "log")).lines
    assert "state:   ineffective" in log
    assert any(line.startswith("finding: KeyOnNoNode: no node has") for line in log)
    db = loaded("get", name_of(loaded, "db")).lines
    assert "pods:    2 on a node, 1 waiting, 1 of them for this constraint" in db
    assert db[-3].split() == ["pod/data/db-2", "<none>", "<none>"]


def test_several_are_described_one_after_the_other(loaded):
    names = [name_of(loaded, owner) for owner in ("web", "db")]
    lines = loaded("get", *names, names[0]).lines
    assert [line.split()[1] for line in lines if line.startswith("id:")] == [
        name.partition("/")[2] for name in names
    ]
    ids = [name.partition("/")[2] for name in names]
    assert loaded("get", "constraint", *ids, "-o", "name").lines == names
    document = json.loads(loaded("get", "constraint", *ids, "-o", "json").out)
    check_document(document)
    assert document["kind"] == "ConstraintDescriptionList"
    web, db = document["items"]
    assert (web["namespace"], web["topologyKey"], web["skew"]) == ("shop", ZONE, 3)
    assert [each["domain"]["value"] for each in web["domains"]] == ["b", "a"]
    assert web["domains"][1]["nodes"][0] == {
        "node": "a1",
        "podCount": 2,
        "reservedPodCount": 0,
        "eligible": True,
        "usable": True,
    }
    assert db["pods"][0] == {"pod": {"name": "db-2", "namespace": "data"}}


def test_pods_that_are_left_out_are_counted(topospread):
    many = "".join(pod("web", number, f"a{number % 2 + 1}") for number in range(102))
    assert topospread("apply", "-f", "-", stdin=NODES + many).code == DONE
    assert topospread("get", name_of(topospread, "web")).lines[-1] == "... and 2 more pods"


MISTAKES = {
    ("constraints/",): "'constraints/' is no constraint: write constraint/ID",
    ("constraint/a", "pod/b"): "'pod/b' is no constraint",
    ("constraint/a", "-l", "app=web"): "give ids or --selector, not both",
    ("constraints", "--show-labels"): "constraints have no labels",
    ("constraints", "-L", "app"): "constraints have no labels",
    ("constraint/0123456789abcdef",): "0123456789abcdef",
}


@pytest.mark.parametrize("asked", MISTAKES, ids=" ".join)
def test_mistakes_are_reported(loaded, asked):
    said = loaded("get", *asked)
    assert (said.code, said.out) == (BAD_INPUT, "")
    assert MISTAKES[asked] in said.err
