"""Parts of objects that lint looks at, and how far."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from topospread.codec.lint_parts import MOST_PARTS, lint_parts
from topospread.codec.lint_readings import known_steps, steps_at
from topospread_client import pod_from_template

CONSTRAINED: dict[str, Any] = {"topologySpreadConstraints": [{"maxSkew": "1"}]}


def custom(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Custom", "spec": spec}


def test_of_many_parts_the_first_are_looked_at_and_the_rest_is_named():
    constrained = {"topologySpreadConstraints": [{"maxSkew": 1}]}
    templates = [{"template": {"spec": {"containers": [], **constrained}}}] * (MOST_PARTS - 1)
    parts = lint_parts(custom(templates=templates, lists=[constrained] * 3))
    assert len(parts) == MOST_PARTS + 1
    *read, rest = (each.workload for each in parts)
    assert [each.unread for each in read] == [""] * MOST_PARTS
    assert rest.unread == f"more than {MOST_PARTS} are too many"
    assert rest.constraints_path == "spec.lists[1].topologySpreadConstraints"


def test_of_many_wrong_values_the_first_are_found():
    constraint = {"labelSelector": {"matchLabels": {f"l{number}": number for number in range(99)}}}
    spec = {"topologySpreadConstraints": [constraint]}
    (part,) = lint_parts({"kind": "Pod", "spec": spec})
    assert len(part.workload.malformed) == 20
    assert part.pod() is None


def test_values_of_a_wrong_type_are_found_once_for_all_parts_of_an_object(monkeypatch):
    read: Counter[str] = Counter()

    def counted(template, **options):
        read["templates"] += 1
        return pod_from_template(template, **options)

    monkeypatch.setattr("topospread.codec.lint_readings.pod_from_template", counted)
    wrong = custom(templates=[{"template": {"spec": {"containers": []}}}] * MOST_PARTS)
    wrong["metadata"] = {"name": "x", "labels": {f"l{number}": number for number in range(9)}}
    first, *others = (each.workload for each in lint_parts(wrong))
    assert [len(first.malformed), {len(each.malformed) for each in others}] == [0, {0}]
    assert read["templates"] == MOST_PARTS + 9
    assert {each.pod.name for each in others} == {first.pod.name}

    read.clear()
    lists = [each.workload for each in lint_parts(custom(lists=[CONSTRAINED] * 120))]
    assert [each.unread for each in lists] == [""] * 100 + [
        "they have too many values of a wrong type"
    ] * 20
    assert read["templates"] == 100 * 2 + 20


def test_more_claims_than_a_workload_has_are_not_read():
    spec = {"volumeClaimTemplates": [{}] * 101, "template": {"spec": {"containers": []}}}
    (part,) = lint_parts(custom(**spec))
    assert part.workload.unread == "more than 100 volumeClaimTemplates"
    assert part.pod() is None


@pytest.mark.parametrize("part", [CONSTRAINED, {"template": {"spec": {"containers": []}}}])
def test_an_object_is_searched_as_often_as_one_part_needs(part):
    class Counted(dict[str, Any]):
        searched = 0

        def items(self):
            Counted.searched += 1
            return super().items()

    counts = set()
    for number in (1, 100):
        Counted.searched = 0
        rollout = {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Rollout",
            "spec": Counted(
                selector={}, template={"spec": {"containers": []}}, more=[part] * number
            ),
        }
        assert lint_parts(rollout)
        counts.add(Counted.searched)
    assert len(counts) == 1


def test_a_pod_is_made_of_what_can_be_read():
    template = {
        "metadata": {"labels": {"a": 1, "b": "c"}},
        "spec": {"containers": {}, **CONSTRAINED},
    }
    selector = {"matchLabels": {"b": "c"}}
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "s", "labels": {"x": 5}},
        "spec": {"selector": selector, "template": template, "volumeClaimTemplates": {}},
    }
    (part,) = lint_parts(manifest)
    assert [each.field for each in part.workload.malformed] == [
        "spec.template.metadata.labels[a]",
        "spec.template.spec.containers",
        "spec.template.spec.topologySpreadConstraints[0].maxSkew",
        "metadata.labels[x]",
        "spec.volumeClaimTemplates",
    ]
    pod = part.pod()
    assert pod is not None
    assert pod.metadata.labels["b"] == "c"


def test_paths_are_followed_as_far_as_they_go():
    content = {"spec": [{"labels": {"a.b/c": 1, "a": {"b": 2}}}]}
    assert steps_at(content, "spec[0].labels[a.b/c]") == ["spec", 0, "labels", "a.b/c"]
    assert steps_at(content, "spec[0].labels.a.b/c") == ["spec", 0, "labels", "a.b/c"]
    assert steps_at(content, "spec[0].labels.a.b") == ["spec", 0, "labels", "a", "b"]
    assert steps_at(content, "spec[1]") is None
    assert known_steps(content, "spec[0].name.x") == (["spec", 0], ".name.x")
    assert known_steps(5, "spec") == ([], "spec")
