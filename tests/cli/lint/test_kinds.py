"""`topospread lint` on objects of all kinds, on values of wrong types and at wrong places."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

CASES = yaml.safe_load(Path(__file__).with_name("kinds.yaml").read_text(encoding="utf-8"))

KEYS = [
    ("zone name", ""),
    ("zone=a", '; did you mean "zone"?'),
    ("/zone", '; did you mean "zone"?'),
    ("kubernetes.io/hostname ", '; did you mean "kubernetes.io/hostname"?'),
    ("Topology.kubernetes.io/zone", '; did you mean "topology.kubernetes.io/zone"?'),
    ("zone,example.com/rack", "; a constraint has one key: write one for each"),
    (
        "topology.kubernetes.io/zone kubernetes.io/hostname",
        "; a constraint has one key: write one for each",
    ),
    ("a/b/c", ""),
    ("z" * 64, ""),
]
"""Keys that the API server takes in a pod and in no node, and how the text about each ends."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["about"])
def test_each_kind_is_linted_as_far_as_it_is_known(bare, case):
    ignored = ",".join(["UnusableNodesCounted", *case.get("ignored", ())])
    given = ("lint", "-f", "-", "--ignore", ignored)
    said = bare(*given, "-o", "json", stdin=case["manifest"])
    items = json.loads(said.out)["items"]
    found = [f"{each['line']} {each['severity'].lower()} {each['code']}" for each in items]
    assert found == case["findings"]
    grave = any(" info " not in each for each in case["findings"])
    assert said.code == grave
    table = bare(*given, stdin=case["manifest"])
    assert table.code == said.code
    assert len(table.out.splitlines()) == len(items)
    assert case.get("said", "") in table.out
    assert table.err.rstrip().endswith(case["linted"])
    assert case.get("skipped", "") in table.err


def test_a_field_beside_its_place_is_to_be_put_there(bare):
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"spec": {"containers": [{"name": "web"}], "matchLabelKeys": ["app"]}},
        },
    }
    said = bare("lint", "-f", "-", "-o", "json", stdin=json.dumps(manifest))
    [mend] = {
        each["mend"] for each in json.loads(said.out)["items"] if each["code"] == "UnknownField"
    }
    assert mend == "Spell it as Kubernetes does, or put it where it belongs."


@pytest.mark.parametrize(("key", "ending"), KEYS, ids=[key for key, _ in KEYS])
@pytest.mark.parametrize("kind", ["Pod", "Broker"])
def test_a_key_that_no_label_can_be_is_an_error(bare, kind, key, ending):
    hard, soft = (
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": action,
            "labelSelector": {"matchLabels": {"a": "b"}},
        }
        for action in ("DoNotSchedule", "ScheduleAnyway")
    )
    manifest = {
        "apiVersion": "v1" if kind == "Pod" else "example.com/v1",
        "kind": kind,
        "metadata": {"name": "p", "labels": {"a": "b"}},
        "spec": {"topologySpreadConstraints": [hard, soft]},
    }
    said = bare("lint", "-f", "-", "-o", "json", stdin=json.dumps(manifest))
    items = json.loads(said.out)["items"]
    assert said.code == 1
    assert [each["code"] for each in items] == ["ImpossibleKey"] * 2
    assert all(each["text"].endswith(ending) for each in items)
    assert "wait forever" in items[0]["text"]
    assert "does nothing" in items[1]["text"]


def test_a_wrong_value_ends_nothing(bare, tmp_path):
    wrong = {"apiVersion": "v1", "kind": "Pod", "spec": {"topologySpreadConstraints": "zone"}}
    other = next(case["manifest"] for case in CASES if "PodTemplate" in case["about"])
    (tmp_path / "a.json").write_text(json.dumps(wrong))
    (tmp_path / "b.yaml").write_text(other)
    annotated = bare("lint", "-f", tmp_path, "-o", "github")
    assert (annotated.code, annotated.out.count("::error file=")) == (1, 3)
    logged = bare("lint", "-f", tmp_path, "-o", "sarif")
    [run] = json.loads(logged.out)["runs"]
    assert (logged.code, len([each for each in run["results"] if each["level"] == "error"])) == (
        1,
        3,
    )


def test_a_key_that_is_given_twice_where_nothing_is_linted_is_refused(bare):
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec:\n  a: 1\n  a: 2\n"
    said = bare("lint", "-f", "-", stdin=service)
    assert (said.code, said.err) == (
        2,
        "topospread: standard input:6: not YAML: the key 'spec.a' is given twice\n",
    )
    case = next(each for each in CASES if each["about"].startswith("an operator's constraints"))
    beside = bare("lint", "-f", "-", stdin=f"{service}---\n{case['manifest']}")
    assert (beside.code, beside.err.splitlines()[-1]) == (2, said.err.rstrip())
    assert "error InvalidConstraint" in beside.out
