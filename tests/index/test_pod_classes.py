"""Pod classes kept as changes come equal those of a recount, for any order of changes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.core import change_of
from tests.conformance.objects import object_of
from topospread.codec.demands import DemandReader
from topospread.codec.frames import framed
from topospread.codec.rows import decode_pod
from topospread.codec.stored import stored
from topospread.index.builder import Builder
from topospread.index.changes import PodChange, PodRow, ReservationChange, ReservationRow
from topospread.index.pod_classes import NamespaceClasses, PodClass, PodCounts

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
                written = stored(object_of(pod(name, variant, state)))
                template = decode_pod(written.payload).template
                assert template is not None
                expected[namespace, template, how] += 1
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
        named = list(builder.members().of(list(classes.values())))
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
    assert parsed.owner is not None
    assert (parsed.owner.kind, parsed.owner.name) == ("ReplicaSet", "web")
    assert DemandReader().of(pod_class.template)[0].requests == (("cpu", 250),)


APP = (("app", "a"),)
WEB = b"web"


def running(name: str, node: str, template: bytes = WEB, namespace: str = "default") -> PodChange:
    """A pod that is bound, or pending without a node."""
    row = PodRow(APP, node, bool(node), () if node else None, template)
    return PodChange(namespace, name, row)


def terminating(name: str, node: str) -> PodChange:
    return PodChange("default", name, PodRow(APP, node, False, ()))


def ended(name: str, node: str) -> PodChange:
    return PodChange("default", name, PodRow(APP, node, False))


def gone(name: str) -> PodChange:
    return PodChange("default", name, None)


def only_class(builder: Builder) -> tuple[PodClass, PodCounts]:
    ((pod_class, counts),) = builder.snapshot.pod_classes["default"].items()
    return pod_class, counts


def test_a_pod_is_pending_then_bound_then_in_no_class() -> None:
    builder = Builder()
    builder.fold([running("stays", "n"), running("p", "")])
    first, counts = only_class(builder)
    assert counts == PodCounts(bound=1, pending=1)
    builder.fold([running("p", "n")])
    assert only_class(builder) == (first, PodCounts(2, 0))
    builder.fold([terminating("p", "n")])
    assert only_class(builder) == (first, PodCounts(1, 0))
    assert list(builder.members().of([first])) == [(first, "stays", "n")]


@pytest.mark.parametrize("leaves", [terminating("p", "n"), ended("p", "n"), gone("p")])
@pytest.mark.parametrize("node", ["n", ""])
def test_a_class_without_pods_is_gone_with_its_namespace(node: str, leaves: PodChange) -> None:
    builder = Builder()
    builder.fold([running("p", node)])
    pod_class, _ = only_class(builder)
    builder.fold([leaves])
    assert builder.snapshot.pod_classes == {}
    assert list(builder.members().of([pod_class])) == []
    builder.fold([running("q", "n", b"other")])
    assert only_class(builder)[0].number == pod_class.number
    assert list(builder.members().of([pod_class])) == [], "another class has its number by now"


def test_a_class_is_the_same_object_as_long_as_it_has_a_running() -> None:
    builder = Builder()
    builder.fold([running("p-0", "n")])
    first, _ = only_class(builder)
    for number in range(1, 5):
        builder.fold([gone(f"p-{number - 1}"), running(f"p-{number}", "")])
        assert only_class(builder) == (first, PodCounts(0, 1))
    builder.fold([gone("p-4")])
    builder.fold([running("p-5", "n")])
    again, _ = only_class(builder)
    assert again is not first
    assert (again.namespace, again.template, again.labels) == ("default", WEB, APP)


def test_equal_templates_of_two_namespaces_are_two_classes() -> None:
    builder = Builder()
    builder.fold([running("p", "n"), running("p", "m", namespace="other")])
    (here,), (there,) = (builder.snapshot.pod_classes[name] for name in ("default", "other"))
    assert list(builder.members().of([here])) == [(here, "p", "n")]
    assert sorted(name for _, _, name in list(builder.members().of([here, there]))) == ["m", "n"]


def test_reservations_are_in_no_class() -> None:
    builder = Builder()
    builder.fold([ReservationChange("default", "p", ReservationRow("u", APP, "n"))])
    assert builder.snapshot.pod_classes == {}
    builder.fold([running("p", "")])
    pod_class, counts = only_class(builder)
    assert counts == PodCounts(0, 1)
    assert list(builder.members().of([pod_class])) == [(pod_class, "p", "")]


def test_classes_do_not_grow_for_ever() -> None:
    builder = Builder()
    for number in range(1000):
        builder.fold([running("p", "n", b"%d" % number)])
    assert len(builder._classes.numbered) <= 2
    assert len(builder._classes._by_template["default"]) == 1


def test_namespaces_without_changes_are_shared() -> None:
    builder = Builder()
    before = builder.fold([running("p", "n"), running("p", "n", namespace="other")]).pod_classes
    after = builder.fold([running("q", "n")]).pod_classes
    assert after["other"] is before["other"]
    assert after["default"] is not before["default"]
    moved = builder.fold([running("q", "m")]).pod_classes
    assert moved is after, "counts are as before when a pod moves"


def test_a_change_copies_a_small_part_of_a_namespace_with_many_classes() -> None:
    """Copying all classes of a large StatefulSet at each fold took the feed's time."""
    builder = Builder()
    builder.fold([running(f"p-{n}", "n", b"%d" % n) for n in range(5000)])
    before = parts(builder)
    builder.fold([running(f"p-{n}", "", b"%d" % n) for n in range(3)])
    after = parts(builder)
    copied = [part for number, part in after.items() if part is not before.get(number)]
    assert sum(map(len, copied)) <= 3 * 256
    assert len(builder.snapshot.pod_classes["default"]) == 5000


def parts(builder: Builder) -> dict[int, dict[PodClass, PodCounts]]:
    classes = builder.snapshot.pod_classes["default"]
    assert isinstance(classes, NamespaceClasses)
    return dict(classes._parts)
