"""Pod classes kept as changes come equal those of a recount, for any order of changes."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.core import change_of
from topospread.codec.demands import DemandReader
from topospread.codec.frames import framed, owner_of
from topospread.index.builder import Builder

Json = dict[str, Any]

NAMES = [f"p{n}" for n in range(5)]
VARIANTS: list[Json] = [
    {"labels": {"app": "a"}},
    {"labels": {"app": "b"}},
    {"labels": {"app": "a"}, "cpu": "1"},
    {"labels": {"app": "a"}, "owner": "web"},
    {"labels": {"app": "a"}, "namespace": "shop"},
]
STATES: list[Json] = [
    {"node": "n1"},
    {"node": "n2"},
    {},
    {"node": "n1", "phase": "Succeeded"},
    {"phase": "Failed"},
    {"node": "n1", "terminating": True},
    {"terminating": True},
]


def pod(name: str, variant: Json, state: Json) -> Json:
    metadata: Json = {
        "name": name,
        "namespace": variant.get("namespace", "default"),
        "labels": variant["labels"],
        "uid": f"uid-{name}",
    }
    if "owner" in variant:
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": variant["owner"]}
        metadata["ownerReferences"] = [owner | {"uid": "u", "controller": True}]
    if state.get("terminating"):
        metadata["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    resources = {"requests": {"cpu": variant.get("cpu", "100m")}}
    spec: Json = {"containers": [{"name": "c", "resources": resources}]}
    if "node" in state:
        spec["nodeName"] = state["node"]
    status = {"phase": state.get("phase", "Running")}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


Step = tuple[str, Json, Json | None]
"""A pod's name and variant, and its state from now on; None: it is deleted."""

steps = st.tuples(
    st.sampled_from(NAMES), st.sampled_from(VARIANTS), st.sampled_from([*STATES, None])
)


def counted(state: Json) -> str:
    """How a pod in a state is counted: bound, pending, or empty for not at all."""
    if state.get("terminating") or state.get("phase"):
        return ""
    return "bound" if "node" in state else "pending"


@given(batches=st.lists(st.lists(steps, min_size=1, max_size=6), max_size=8))
def test_counts_and_members_are_those_of_a_recount(batches: list[list[Step]]) -> None:
    builder = Builder()
    pods: dict[tuple[str, str], tuple[Json, Json]] = {}
    before: dict[tuple[str, bytes], object] = {}
    for batch in batches:
        changes = []
        touched = set()
        for name, variant, state in batch:
            key = (variant.get("namespace", "default"), name)
            if key in touched:
                continue  # a fold gets each object once
            touched.add(key)
            changes.append(change_of(pod(name, variant, state or {}), gone=state is None))
            if state is None:
                pods.pop(key, None)
            else:
                pods[key] = (variant, state)
        snapshot = builder.fold(changes)
        expected: Counter[tuple[str, bytes, str]] = Counter()
        members = set()
        for (namespace, name), (variant, state) in pods.items():
            if how := counted(state):
                row = change_of(pod(name, variant, state)).row  # type: ignore[union-attr]
                template = row.template  # type: ignore[union-attr]
                expected[namespace, template, how] += 1  # type: ignore[index]
                members.add((namespace, template, name, state.get("node", "")))
        found: Counter[tuple[str, bytes, str]] = Counter()
        classes = {}
        for namespace, kept in snapshot.pod_classes.items():
            assert len(kept) == len(list(kept)) > 0
            for pod_class, counts in kept.items():
                assert pod_class.namespace == namespace
                found[namespace, pod_class.template, "bound"] += counts.bound
                found[namespace, pod_class.template, "pending"] += counts.pending
                assert counts != (0, 0)
                classes[namespace, pod_class.template] = pod_class
        assert +found == expected
        named = builder.members(list(classes.values()))
        assert {(c.namespace, c.template, name, node) for c, name, node in named} == members
        assert len(named) == len(members)
        # The same object for as long as there is a pod of it.
        for content, pod_class in classes.items():
            assert before.get(content, pod_class) is pod_class
        before = dict(classes)


def test_a_published_snapshot_keeps_its_classes() -> None:
    builder = Builder()
    first = builder.fold([change_of(pod("p", VARIANTS[0], {"node": "n1"}))])
    builder.fold([change_of(pod("p", VARIANTS[0], {}), gone=True)])
    ((_, counts),) = first.pod_classes["default"].items()
    assert counts == (1, 0)
    assert not builder.snapshot.pod_classes


def test_many_classes_of_a_namespace() -> None:
    builder = Builder()
    variants = [{"labels": {"pod-name": f"p{n}"}} for n in range(1000)]
    builder.fold([change_of(pod(f"p{n}", v, {"node": "n1"})) for n, v in enumerate(variants)])
    builder.fold([change_of(pod(f"p{n}", variants[n], {}), gone=True) for n in range(1, 1000)])
    (kept,) = builder.snapshot.pod_classes["default"]
    assert dict(kept.labels) == {"pod-name": "p0"}


def test_a_template_has_the_shape_the_owner_and_the_requests_of_its_pods() -> None:
    builder = Builder()
    variant = {"labels": {"app": "a"}, "owner": "web", "cpu": "250m"}
    builder.fold([change_of(pod("p", variant, {"node": "n1"}))])
    (pod_class,) = builder.snapshot.pod_classes["default"]
    parsed = framed(pod_class.template).parse(100)
    assert (parsed.labels, parsed.name, parsed.node_name) == ({"app": "a"}, "", "")
    owner = owner_of(pod_class.template)
    assert owner is not None
    assert (owner.kind, owner.name) == ("ReplicaSet", "web")
    assert DemandReader().of(pod_class.template)[0].requests == (("cpu", 250),)
