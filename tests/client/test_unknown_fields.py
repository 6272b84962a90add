"""Fields that Kubernetes does not have are found in manifests, and with STRICT refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf.descriptor import FieldDescriptor

from tests.conformance.cases import lines
from tools import kubernetes_fields
from topospread_client import (
    Connection,
    InvalidRequest,
    Unavailable,
    Violation,
    manifest_from_object,
    unknown_fields,
)
from topospread_proto.v1 import common_pb2 as common
from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.client.callers import Caller

SCALARS = {
    FieldDescriptor.CPPTYPE_INT32: int,
    FieldDescriptor.CPPTYPE_INT64: int,
    FieldDescriptor.CPPTYPE_BOOL: bool,
    FieldDescriptor.CPPTYPE_STRING: str,
}
STRICT = "STRICT"
CONSTRAINT = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
MISSPELT = {
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"topologySpreadConstraints": [{**CONSTRAINT, "labelSelectors": {}}]},
}
ADDED = "addPods[0].pod"
SELECTOR = "spec.topologySpreadConstraints[0].labelSelectors"


def paths(manifest: Any) -> list[str]:
    return [each.field for each in unknown_fields(manifest)]


def test_known_fields_are_those_of_kubernetes_schemas():
    written = kubernetes_fields.PATH.read_text()
    assert written == kubernetes_fields.content(), "run `python -m tools.kubernetes_fields`"


def test_a_misspelt_field_is_named_with_the_one_that_is_meant():
    assert unknown_fields(MISSPELT, "pod.object") == (
        Violation(f"pod.object.{SELECTOR}", "FIELD_UNKNOWN", 'did you mean "labelSelector"?'),
    )
    (alone,) = unknown_fields({"kind": "Pod", "sqec": {}})
    assert alone.text == 'sqec: Unknown field: did you mean "spec"?'
    (far,) = unknown_fields({"kind": "Pod", "frobnicate": {}})
    assert far.text == "frobnicate: Unknown field"


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        ({"spec": {"topologySpreadConstraint": []}}, ["spec.topologySpreadConstraint"]),
        ({"spec": {"nodename": "n"}, "Spec": {}}, ["spec.nodename", "Spec"]),
        (
            {"spec": {"containers": [{}, {"env": [{"nam": "x"}], "ressources": {}}]}},
            ["spec.containers[1].env[0].nam", "spec.containers[1].ressources"],
        ),
        # Two of Kubernetes' types have this name: what a container claims, and the kind.
        (
            {"spec": {"containers": [{"resources": {"claims": [{"name": "g", "request": "r"}]}}]}},
            [],
        ),
        (
            {"spec": {"containers": [{"resources": {"claims": [{"spec": {}}]}}]}},
            ["spec.containers[0].resources.claims[0].spec"],
        ),
        ({"kind": "ResourceClaim", "spec": {"devices": {}}}, []),
        ({"kind": "Node", "spec": {"taint": []}}, ["spec.taint"]),
        ({"kind": "Service", "apiVersion": "v1", "spec": {"selectors": {}}}, ["spec.selectors"]),
        (
            {
                "kind": "CronJob",
                "spec": {"jobTemplate": {"spec": {"template": {"spec": {"affinities": {}}}}}},
            },
            ["spec.jobTemplate.spec.template.spec.affinities"],
        ),
        # Kinds that are not Kubernetes' own are known as far as each has it.
        (
            {
                "kind": "CloneSet",
                "metadata": {"label": {}},
                "spec": {"scaleStrategy": {}, "template": {"spec": {"nodeSelectors": {}}}},
            },
            ["metadata.label", "spec.template.spec.nodeSelectors"],
        ),
        (
            {"kind": "Service", "apiVersion": "serving.knative.dev/v1", "spec": {"traffic": []}},
            [],
        ),
        # Free content has no fields; wrong types are for the conversion to refuse.
        ({"metadata": {"labels": {"spce": "x"}, "annotations": {"a": "b"}}}, []),
        ({"metadata": {"managedFields": [{"fieldsV1": {"f:spce": {}}}]}}, []),
        ({"spec": {"nodeSelector": {"x": "y"}, "overhead": {"cpu": "1"}}}, []),
        ({"spec": {"containers": {"nam": 1}, "affinity": [{"nam": 1}], "volumes": None}}, []),
        ({"spec": {"containers": [None, 5, [{"nam": 1}]]}}, []),
        ({"kind": ["x"], "metadata": 5}, []),
        (5, []),
        ({1: "a number", None: "nothing"}, ["1", "None"]),
    ],
)
def test_unknown_fields_are_found_wherever_they_are(manifest, expected):
    assert paths(manifest) == expected


def test_pods_that_a_real_api_server_took_have_known_fields_alone():
    taken = [line for line in lines("validation.jsonl.gz") if not line["expect"]]
    assert len(taken) > 50
    assert [paths(line["pod"]) for line in taken] == [[]] * len(taken)


@pytest.mark.parametrize("kind", [field.name for field in ClusterObject.DESCRIPTOR.fields])
def test_all_fields_that_a_server_keeps_are_known(kind: str):
    kept = ClusterObject()
    fill(getattr(kept, kind))
    assert paths(manifest_from_object(kept)) == []


def fill(message: Any) -> None:
    """Set every field of a message, to any value."""
    for field in message.DESCRIPTOR.fields:
        inner, value = field.message_type, getattr(message, field.name)
        if inner is None:
            scalar = SCALARS[field.cpp_type](1) if field.type != field.TYPE_BYTES else b""
            if field.is_repeated:
                value.append(scalar)
            else:
                setattr(message, field.name, scalar)
        elif inner.GetOptions().map_entry:
            if inner.fields_by_name["value"].message_type:
                value["a"].string = "1"
            else:
                value["a"] = "b"
        else:
            fill(value.add() if field.is_repeated else value)


def test_similar_names_are_looked_for_a_few_times_only(monkeypatch):
    import difflib

    asked: list[str] = []

    def count(word: str, *_: object) -> list[str]:
        asked.append(word)
        return []

    monkeypatch.setattr(difflib, "get_close_matches", count)
    many: dict[str, Any] = {"spec": {f"labelSelector{number}": {} for number in range(1000)}}
    assert len(unknown_fields(many)) == 1000
    assert len(asked) == 20
    asked.clear()
    assert len(unknown_fields({"spec": {"x" * 100_000: {}}})) == 1
    assert asked == []


@pytest.fixture
def offline(connect: Callable[..., Caller]) -> Caller:
    return connect(Connection("127.0.0.1:1", retries=False))


def scenario(**changes: Any) -> dict[str, Any]:
    return {"changes": changes, "validation": STRICT}


STRICT_CALLS: list[tuple[Callable[[Any], object], str]] = [
    (lambda c: c.evaluate_pod(MISSPELT, validation=STRICT), "pod.object"),
    (lambda c: c.filter(MISSPELT, validation=common.CONSTRAINT_VALIDATION_STRICT), "pod.object"),
    (lambda c: c.explain_pod(MISSPELT, validation=STRICT), "pod.object"),
    (lambda c: c.place_pod(MISSPELT, validation=STRICT), "pod.object"),
    (lambda c: c.reserve_node(MISSPELT, "n", validation=STRICT), "pod.object"),
    (lambda c: c.batch_evaluate_pods([{}, MISSPELT], validation=STRICT), "pods[1].object"),
    (lambda c: c.filter({}, add_pods=[(MISSPELT, "n")], validation=STRICT), f"{ADDED}.object"),
    (lambda c: c.simulate([{}, (MISSPELT, 2)], scenario=scenario()), "pods[1].pod.object"),
    (
        lambda c: c.simulate([], scenario=scenario(add_pods=[(MISSPELT, None)])),
        f"scenario.changes.{ADDED}.object",
    ),
]


@pytest.mark.parametrize(("call", "root"), STRICT_CALLS)
def test_strict_validation_refuses_unknown_fields_before_anything_is_sent(
    offline: Caller, call: Any, root: str
):
    with pytest.raises(InvalidRequest) as refused:
        call(offline)
    assert [each.field for each in refused.value.violations] == [f"{root}.{SELECTOR}"]
    assert str(refused.value) == f'{root}.{SELECTOR}: Unknown field: did you mean "labelSelector"?'


def test_unknown_fields_and_wrong_types_are_said_at_once(offline: Caller):
    pod = {"specs": {}, "spec": {"nodeName": 5, "nodeNames": "x"}}
    with pytest.raises(InvalidRequest) as refused:
        offline.evaluate_pod(pod, validation=STRICT)
    assert [each.field for each in refused.value.violations] == [
        "pod.object.specs",
        "pod.object.spec.nodeNames",
        "pod.object.spec.nodeName",
    ]
    assert str(refused.value).endswith("(and 2 more)")


def test_without_strict_validation_unknown_fields_are_left_out(offline: Caller):
    for validation in (None, "IGNORE"):
        with pytest.raises(Unavailable):
            offline.evaluate_pod(MISSPELT, validation=validation)
