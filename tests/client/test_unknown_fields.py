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
        ({1: "a number", None: "nothing"}, ["1", "null"]),
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


CONSTRAINED = {"spec": {"containers": [{}], "topologySpreadConstraints": [CONSTRAINT]}}
DEPLOYMENT = {"kind": "Deployment", "spec": {"selector": {}, "template": CONSTRAINED}}
OF_POD = "spec.template.spec"
FIRST = f"{OF_POD}.topologySpreadConstraints[0]"


def placed(manifest: Any, path: list[Any], name: str, value: Any) -> Any:
    """A copy of a manifest with one field more."""
    if not path:
        return {**manifest, name: value}
    first, *rest = path
    if isinstance(manifest, list):
        return [
            placed(each, rest, name, value) if n == first else each
            for n, each in enumerate(manifest)
        ]
    return {**manifest, first: placed(manifest.get(first, {}), rest, name, value)}


IN_FIRST = ["spec", "template", "spec", "topologySpreadConstraints", 0]


@pytest.mark.parametrize(
    ("path", "name", "value", "hint"),
    [
        (IN_FIRST, "matchLabels", {}, f"it belongs under {FIRST}.labelSelector"),
        (IN_FIRST, "matchExpressions", [], f"it belongs under {FIRST}.labelSelector"),
        (IN_FIRST, "selector", {}, 'did you mean "labelSelector"?'),
        (IN_FIRST, "podSelector", {"matchLabels": {}}, 'did you mean "labelSelector"?'),
        (IN_FIRST, "pods", {"app": "a"}, f"it belongs under {FIRST}.labelSelector.matchLabels"),
        (IN_FIRST, "a.b/c", "a", f"it belongs under {FIRST}.labelSelector.matchLabels"),
        (IN_FIRST, "when", "DoNotSchedule", ""),
        (IN_FIRST, "constraint", {"maxSkew": 1}, "its fields belong in the constraint itself"),
        (
            [*IN_FIRST, "labelSelector"],
            "app",
            "a",
            f"it belongs under {FIRST}.labelSelector.matchLabels",
        ),
        (
            [*IN_FIRST, "labelSelector"],
            "a.b/c",
            1,
            f"it belongs under {FIRST}.labelSelector.matchLabels",
        ),
        ([*IN_FIRST, "labelSelector"], "matchLabel", {}, 'did you mean "matchLabels"?'),
        ([*IN_FIRST, "labelSelector"], "maxSkew", 1, f"it belongs under {FIRST}"),
        (
            [*IN_FIRST, "labelSelector"],
            "operator",
            "In",
            f"it belongs under {FIRST}.labelSelector.matchExpressions[]",
        ),
        ([], "topologySpreadConstraints", [], f"it belongs under {OF_POD}"),
        (["metadata"], "topologySpreadConstraints", [], f"it belongs under {OF_POD}"),
        (["spec"], "topologySpreadConstraints", [], f"it belongs under {OF_POD}"),
        (["spec", "template"], "topologySpreadConstraints", [], f"it belongs under {OF_POD}"),
        (
            ["spec", "template", "spec", "containers", 0],
            "topologySpreadConstraints",
            [],
            f"it belongs under {OF_POD}",
        ),
        (
            ["spec", "template", "spec", "affinity", "podAntiAffinity"],
            "topologySpreadConstraints",
            [],
            f"it belongs under {OF_POD}",
        ),
        (["spec"], "maxSkew", 1, f"it belongs under {OF_POD}.topologySpreadConstraints[]"),
        (["spec"], "nodeSelector", {}, f"it belongs under {OF_POD}"),
        (["spec"], "labels", {}, "it belongs under spec.template.metadata"),
        (["spec", "template", "spec"], "replicas", 3, "it belongs under spec"),
        (["spec"], "x" * 100, 3, ""),
        (["metadata"], "spec", {}, "it belongs at the root of the object"),
        (["spec", "template", "metadata"], "spec", {}, "it belongs under spec.template"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "pod.object"])
def test_a_field_at_a_wrong_place_is_shown_where_it_belongs(path, name, value, hint, prefix):
    (found,) = unknown_fields(placed(DEPLOYMENT, path, name, value), prefix)
    root = f"{prefix}." if prefix else ""
    assert found.description == hint.replace("under ", f"under {root}")
    assert found.field.startswith(root)
    assert found.field.endswith(name)


OPERATOR = {"apiVersion": "example.com/v1", "kind": "Broker", "spec": {}}


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        ({**OPERATOR, "spec": {"template": {"spec": {"containers": [], "timeout": 1}}}}, []),
        (
            {
                **OPERATOR,
                "spec": {"a": [{"template": {"spec": {"topologySpreadConstraints": [{"x": 1}]}}}]},
            },
            ["spec.a[0].template.spec.topologySpreadConstraints[0].x"],
        ),
        (
            {**OPERATOR, "spec": {"topologySpreadConstraints": [{"maxSkews": 1}, 5]}},
            ["spec.topologySpreadConstraints[0].maxSkews"],
        ),
        (
            {
                "apiVersion": "argoproj.io/v1alpha1",
                "kind": "Rollout",
                "spec": {"template": CONSTRAINED, "topologySpreadConstraints": []},
            },
            ["spec.topologySpreadConstraints"],
        ),
        (
            {
                "apiVersion": "monitoring.coreos.com/v1",
                "kind": "Prometheus",
                "spec": {"topologySpreadConstraints": [{"additionalLabelSelectors": "OnShard"}]},
            },
            [],
        ),
        (
            {"apiVersion": "v1", "kind": "PodTemplate", "template": {"specs": {}}},
            ["template.specs"],
        ),
    ],
)
def test_of_other_kinds_constraints_alone_are_known(manifest, expected):
    assert paths(manifest) == expected
