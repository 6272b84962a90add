"""The JSON Schema of what `topospread -o json` prints, from the messages that are printed."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, get_type_hints

from topospread.cli.commands.explain import PendingWorkload
from topospread.cli.documents import (
    API_VERSION,
    LEFT_OUT,
    MEANT_EMPTY,
    UNKNOWN_EMPTY,
    camel,
    constant,
    constant_of,
    merged,
    value_name,
)
from topospread.cli.errors import Subject
from topospread.cli.kinds import OBJECTS, STORED
from topospread.cli.manifest_objects import NextReplica
from topospread.cli.render.lint import LintItem
from topospread.config.descriptions import SETTINGS
from topospread.config.settings import ServerSettings
from topospread.spread.linting.catalog import Severity
from topospread_proto.v1 import cluster_state_service_pb2 as state
from topospread_proto.v1 import common_pb2 as common
from topospread_proto.v1 import decision_service_pb2 as decisions
from topospread_proto.v1 import (
    error_reason_pb2,
    explanation_pb2,
    server_service_pb2,
)
from topospread_proto.v1 import inspector_service_pb2 as inspector
from topospread_proto.v1 import placement_service_pb2 as placement
from topospread_proto.v1 import planner_service_pb2 as planner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_Json: TypeAlias = "dict[str, Any]"

_STRING: Final = {"type": "string"}
_INTEGER: Final = {"type": "integer"}
_NUMBER: Final = {"type": "number"}
_BOOLEAN: Final = {"type": "boolean"}


def _array(items: _Json) -> _Json:
    return {"type": "array", "items": items}


def _map(values: _Json) -> _Json:
    return {"type": "object", "additionalProperties": values}


def _closed(properties: Mapping[str, Any], required: Sequence[str]) -> _Json:
    """An object that has these properties and no others."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


_STRINGS: Final = _array(_STRING)
_DURATION: Final = {"type": "string", "pattern": r"^\d+(\.\d+)?s$"}
_EXPRESSION: Final = {"key": _STRING, "operator": _STRING, "values": _STRINGS}
_KUBERNETES: Final[Mapping[str, tuple[str, _Json]]] = {
    "LabelSelector": (
        "LabelSelector",
        {
            "description": "A label selector of Kubernetes.",
            "type": "object",
            "properties": {
                "matchLabels": _map(_STRING),
                "matchExpressions": _array(_closed(_EXPRESSION, ["key", "operator"])),
            },
            "additionalProperties": False,
        },
    ),
    "ClusterObject": (
        "KubernetesObject",
        {
            "description": "An object as Kubernetes writes it, as far as it is kept.",
            "type": "object",
            "properties": {
                "apiVersion": {"enum": ["v1", "apps/v1", "batch/v1", "storage.k8s.io/v1"]},
                "kind": {"enum": [*STORED, *(f"{kind}List" for kind in OBJECTS)]},
                "metadata": {"type": "object"},
                "items": {
                    "description": "Of a list in a dump: that there are none.",
                    "maxItems": 0,
                },
            },
            "required": ["apiVersion", "kind", "metadata"],
        },
    ),
}
"""Names and schemas of Kubernetes' own."""

_WRITTEN_WHOLE: Final[Mapping[str, _Json]] = {
    "Timestamp": {"type": "string", "format": "date-time"},
    "Duration": _DURATION,
}
_SEVERITY: Final = {"enum": [constant(str(each.value)) for each in Severity]}
_REASONS: Final = [each for each in error_reason_pb2.ErrorReason.values() if each]

_MAY_LACK: Final[Mapping[str, set[str]]] = {
    "counted": {"ConstraintStatus", "ConstraintExplanation"},
    "decider": {"RankDeletionsResponse"},
    "expire_time": {"PlacePodResponse", "Reservation", "ReserveNodeResponse"},
    "explanation": {"PendingPods"},
    "fewest_nodes": {"SimulateResponse"},
    "rollout": {"ExplainPodResponse", "PlacedWorkload"},
    "keeps_longest": {"RankDeletionsResponse"},
    "label_selector": {"SpreadConstraint"},
    "minimum_reason": {"ConstraintStatus"},
    "optimality": {"FewestNodes", "PlanRebalanceResponse", "RebalanceGroup"},
    "owner": {"ConstraintStatus"},
    "last_transition_time": {"PodScheduledCondition"},
    "reason": {"MinimumExplanation"},
    "scheduled_condition": {"Explanation"},
    "scores": {"DomainExplanation"},
    "start_time": {"GetServerInfoResponse"},
    "store_unreachable_for": {"Cluster", "ResponseMeta"},
    "sync_lease": {"Cluster"},
    "workload": {"DeletionDecider", "WorkloadPodCount"},
}
"""Messages that may be without a message or constant of this name; all others have it."""

_LISTED_AT: Final = {
    "description": "Of the state that was read. What was written meanwhile may be among the items"
    " of `get`; a dump is of one revision.",
    **_STRING,
}
_OWN_REVISION: Final = "Each is of a call of its own, and so of a revision of its own."
_BY_KIND: Final = _array(_closed({"kind": _STRING, "count": _INTEGER}, ["kind", "count"]))


def schema() -> str:
    """The text of docs/output.schema.json."""
    made = _Schema()
    documents = {kind: _titled(kind, each) for kind, each in _documents(made).items()}
    listed = {
        "revision": _LISTED_AT,
        "cluster": {"description": "Of a dump that is not anonymous.", **_STRING},
        "metadata": {"description": "Of a dump, as kubectl's.", "type": "object"},
        "items": _array(made.object()),
    }
    documents["List"] = _titled("List", _closed(listed, ["revision", "items"]), "v1")
    assert not documents.keys() & made.definitions.keys()
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What topospread -o json prints",
        "oneOf": [{"$ref": f"#/$defs/{kind}"} for kind in (*documents, "KubernetesObject")],
        "$defs": {**documents, **made.definitions},
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def _documents(made: _Schema) -> _Json:
    """Documents by their kinds."""
    of_one_revision = {"revision": _LISTED_AT}
    judged_as = {"kubernetesVersion": _STRING}
    explained = made.list_of(Subject, decisions.ExplainPodResponse, fits=_BOOLEAN)
    item = explained["properties"]["items"]["items"]
    del item["properties"]["evaluation"]
    item["required"].remove("evaluation")
    item["properties"]["nextReplica"] = made.reference(NextReplica)
    evaluated = made.list_of(
        Subject,
        decisions.EvaluatePodResponse,
        fits=_BOOLEAN,
        constraints=made.array(decisions.ConstraintState),
        notModelled=_STRINGS,
    )
    evaluated["properties"]["items"]["items"]["properties"]["nextReplica"] = made.reference(
        NextReplica
    )
    del made.definitions["EvaluatePodResponse"]
    # Where no soft constraint scores nodes they have a name alone.
    made.definitions["NodeScore"]["required"] = []
    findings = made.array(LintItem)
    code = {"code": made.enum(explanation_pb2.FindingCode.DESCRIPTOR)}
    made.definitions["LintItem"]["properties"] |= code
    made.definitions["LintItem"]["required"] += code
    placed = made.list_of(Subject, placement.PlacePodResponse)
    pending = made.list_of(
        PendingWorkload, head={"podCount": _INTEGER, "unexplainedPodCount": _INTEGER}
    )
    results = made.list_of(
        state.ObjectResult,
        head={
            **made.properties(common.ResponseMeta)[0],
            "skipped": {"description": "Objects of kinds that are not kept.", **_BY_KIND},
            "notInInput": {
                "description": "Other objects of the state, of kinds of which the input looks "
                "whole.",
                **_BY_KIND,
            },
        },
    )
    totals = made.array(inspector.SpreadStateCount)
    event = {
        "cluster": _STRING,
        "revision": _STRING,
        "type": made.enum(state.WatchEventType.DESCRIPTOR),
    }
    changed = {**event, "ref": made.reference(state.ObjectReference), "object": made.object()}
    profile = {
        "name": _STRING,
        "defaultingType": _STRING,
        "defaultConstraints": _array({"type": "object"}),
    }
    checked = {
        "profiles": _array(_closed(profile, list(profile))),
        "featureGates": _map(_BOOLEAN),
        "settings": _closed(_settings(), list(_settings())),
    }
    return {
        "EvaluationList": evaluated,
        "ExplanationList": explained,
        "PendingPodList": pending,
        "LintFindingList": made.joined(items=findings),
        "ConstraintList": made.list_of(
            inspector.ConstraintStatus, head={"totals": totals, **of_one_revision, **judged_as}
        ),
        "ConstraintDescriptionList": made.list_of(inspector.GetConstraintResponse),
        "PlacementList": placed,
        "ReleaseList": made.list_of(
            placement.ReleaseReservationResponse, pod=made.reference(common.PodReference)
        ),
        "ReservationList": made.list_of(placement.Reservation, head=of_one_revision),
        "ObjectResultList": results,
        "ReplacementList": made.list_of(
            state.ReplaceObjectsResponse, kind=made.enum(common.Kind.DESCRIPTOR)
        ),
        "DeletionOrder": made.whole(planner.RankDeletionsResponse),
        "Simulation": made.whole(planner.SimulateResponse, pods=made.array(Subject)),
        "RebalancePlan": made.whole(planner.PlanRebalanceResponse),
        "ServerStatus": made.whole(
            server_service_pb2.GetServerInfoResponse,
            address=_STRING,
            clusters=made.array(state.Cluster),
        ),
        "ClusterDeletion": made.whole(state.DeleteClusterResponse),
        "WatchEvent": _closed(changed, ["cluster", "type"]),
        "ConstraintEvent": made.joined(
            **event, **judged_as, constraint=made.joined(inspector.ConstraintStatus)
        ),
        "Version": made.joined(version=_STRING, pythonVersion=_STRING),
        "ConfigurationCheck": made.joined(**checked),
        "Error": made.joined(error=_error(made)),
    }


def _settings() -> _Json:
    """Every setting by its key."""
    hints = get_type_hints(ServerSettings)
    written: dict[Any, Any] = {int: _INTEGER, float: _NUMBER, bool: _BOOLEAN}
    written |= {tuple[str, ...]: _STRINGS, dict[str, bool]: _map(_BOOLEAN)}
    return {
        one.key: _DURATION if one.unit == "seconds" else written.get(hints[one.name], _STRING)
        for one in SETTINGS.values()
    }


def _error(made: _Schema) -> _Json:
    reasons = [value_name(error_reason_pb2.ErrorReason, each) for each in _REASONS]
    violation = {
        **made.properties(Subject)[0],
        "field": _STRING,
        "reason": _STRING,
        "description": _STRING,
    }
    return _closed(
        {
            "code": {"description": "Of gRPC; absent where no call failed.", **_STRING},
            "reason": {
                "description": "An ErrorReason, also where a call failed in such a way and no "
                "server told one. Else BAD_USAGE: the command line cannot be read; BAD_INPUT: "
                "what was given cannot be used; or OUT_OF_REACH: no answer came. A newer server "
                "may tell what is not among the examples.",
                "examples": [*reasons, "BAD_USAGE", "BAD_INPUT", "OUT_OF_REACH"],
                **_STRING,
            },
            "message": _STRING,
            "metadata": {
                "description": "What the server told beside the reason, as `holder`.",
                **_map(_STRING),
            },
            "retryAfter": {
                "description": "How long to wait, where trying again helps.",
                **_DURATION,
            },
            "violations": {
                "description": "Of fields; with the pod that each is about, where a verb is asked "
                "about pods.",
                **_array(_closed(violation, [])),
            },
        },
        ["reason", "message"],
    )


def _titled(kind: str, document: _Json, version: str = API_VERSION) -> _Json:
    """A document with what every one begins with."""
    head = {"apiVersion": {"const": version}, "kind": {"const": kind}}
    return {
        **document,
        "properties": {**head, **document["properties"]},
        "required": [*head, *document["required"]],
    }


class _Schema:
    """Collects the definitions that documents refer to."""

    def __init__(self) -> None:
        self.definitions: _Json = {}

    def list_of(
        self, *parts: Any, head: Mapping[str, Any] = MappingProxyType({}), **more: Any
    ) -> _Json:
        """A document with a list, each of whose items has the fields of all parts.

        `head` are properties of the document itself that may be absent; `more`, those of an item.
        """
        item = self.joined(*parts, **more)
        if "revision" in item["properties"]:
            item = {"description": _OWN_REVISION, **item}
        return _closed({"cluster": _STRING, **head, "items": _array(item)}, ["cluster", "items"])

    def whole(self, message: Any, **more: Any) -> _Json:
        """A document with the fields of an answer and others."""
        document = self.joined(message, **more)
        document["properties"] = {"cluster": _STRING, **document["properties"]}
        return document

    def joined(self, *parts: Any, **more: Any) -> _Json:
        """An object with the fields of all parts and others."""
        properties: _Json = {}
        required: list[str] = []
        for part in parts:
            found, needed = self.properties(part)
            properties |= found
            required += needed
        return _closed(properties | more, list(dict.fromkeys((*required, *more))))

    def array(self, item: Any) -> _Json:
        """A list of messages or of dataclasses."""
        return _array(self.reference(item))

    def reference(self, kind: Any) -> _Json:
        """Reference to the definition of a message or of a dataclass, which is made with it."""
        part = getattr(kind, "DESCRIPTOR", kind)
        name = part.__name__ if isinstance(part, type) else part.name
        return self._defined(name, lambda: self.joined(part))

    def properties(self, part: Any) -> tuple[_Json, list[str]]:
        """The properties of a message or a dataclass, and the names of those that it always has."""
        if isinstance(part, type) and is_dataclass(part):
            return self._members(part)
        properties: _Json = {}
        required: list[str] = []
        for field in getattr(part, "DESCRIPTOR", part).fields:
            left_out = merged(field)
            if left_out is not None:
                found, needed = self.properties(field.message_type)
                properties |= {name: each for name, each in found.items() if name not in left_out}
                required += [name for name in needed if field.name != "meta"]
            elif field.name == "traceparent":
                properties["traceId"] = _STRING
            elif field.name not in LEFT_OUT:
                properties[field.json_name] = self.type(field)
                if _is_always_there(field):
                    required.append(field.json_name)
        return properties, required

    def _members(self, part: type) -> tuple[_Json, list[str]]:
        written = {
            "str": _STRING,
            "int": _INTEGER,
            "bool": _BOOLEAN,
            "Severity": _SEVERITY,
            "Sequence[str]": _STRINGS,
        }
        messages = {
            "PodReference": common.PodReference,
            "PodScheduledCondition": explanation_pb2.PodScheduledCondition,
        }
        hints = {camel(each.name): str(each.type) for each in fields(part)}
        properties = {
            name: self.reference(messages[hint]) if hint in messages else written[hint]
            for name, hint in ((name, hint.removesuffix(" | None")) for name, hint in hints.items())
        }
        required = [n for n, hint in hints.items() if hint != "str" and " | None" not in hint]
        return properties, required

    def type(self, field: Any) -> Any:
        """The schema of a field."""
        message = field.message_type
        if message is not None and message.GetOptions().map_entry:
            return _map(self.type(message.fields_by_name["value"]))
        single = self._single(field)
        return _array(single) if field.is_repeated else single

    def _single(self, field: Any) -> Any:
        if field.enum_type is not None:
            return self.enum(field.enum_type)
        if field.message_type is not None:
            name = field.message_type.name
            if name in _WRITTEN_WHOLE:
                return _WRITTEN_WHOLE[name]
            if name in _KUBERNETES:
                return self._whole(name)
            return self.reference(field.message_type)
        if field.cpp_type == field.CPPTYPE_BOOL:
            return _BOOLEAN
        if field.cpp_type == field.CPPTYPE_STRING:
            return _STRING
        return _NUMBER if field.cpp_type == field.CPPTYPE_DOUBLE else _INTEGER

    def object(self) -> _Json:
        """The schema of an object of a cluster."""
        return self._whole("ClusterObject")

    def _whole(self, kind: str) -> _Json:
        name, schema = _KUBERNETES[kind]
        return self._defined(name, lambda: schema)

    def enum(self, enum: Any) -> _Json:
        """The schema of an enum."""
        numbers = [number for number in enum.values_by_number if number]
        constants = [constant_of(enum, number) for number in numbers]
        return self._defined(enum.name, lambda: {"enum": constants})

    def _defined(self, name: str, make: Callable[[], Any]) -> _Json:
        if name not in self.definitions:
            self.definitions[name] = {}  # it may refer to itself
            self.definitions[name] = make()
        return {"$ref": f"#/$defs/{name}"}


def _is_always_there(field: Any) -> bool:
    if field.name in UNKNOWN_EMPTY or field.containing_oneof is not None:
        return False
    if field.is_repeated:
        return True
    if field.message_type is not None or field.enum_type is not None:
        return field.containing_type.name not in _MAY_LACK.get(field.name, ())
    return field.cpp_type != field.CPPTYPE_STRING or field.name in MEANT_EMPTY
