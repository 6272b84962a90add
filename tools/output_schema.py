"""The JSON Schema of what `topospread -o json` prints, from the types that it is printed from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

import topospread_client
from topospread.cli.documents import (
    API_VERSION,
    DURATIONS,
    MEANT_EMPTY,
    UNKNOWN_EMPTY,
    camel,
    constant,
)
from topospread.cli.errors import Subject
from topospread.cli.manifest_objects import NextReplica
from topospread.cli.render.evaluation import NamedNode
from topospread.cli.render.lint import LintItem
from topospread.cli.render.pending import PendingWorkload
from topospread.config import values
from topospread.config.settings import SETTINGS, ServerSettings
from topospread.spread.linting.catalog import Severity
from topospread_client import Kind
from topospread_proto.kubernetes.v1 import kubernetes_pb2
from topospread_proto.kubernetes.v1.kubernetes_pb2 import LabelSelector

_NAMES: Final = {name: getattr(topospread_client, name) for name in topospread_client.__all__}

_STRING: Final = {"type": "string"}
_INTEGER: Final = {"type": "integer"}
_STRINGS: Final = {"type": "array", "items": _STRING}
_WRITTEN: Final = {
    str: _STRING,
    int: _INTEGER,
    float: {"type": "number"},
    bool: {"type": "boolean"},
    datetime: {"type": "string", "format": "date-time"},
}
_DURATION: Final = {"type": "string", "pattern": r"^\d+(\.\d+)?s$"}
_SELECTOR: Final = {
    "description": "A label selector of Kubernetes.",
    "type": "object",
    "properties": {
        "matchLabels": {"type": "object", "additionalProperties": _STRING},
        "matchExpressions": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"key": _STRING, "operator": _STRING, "values": _STRINGS},
                "required": ["key", "operator"],
                "additionalProperties": False,
            },
        },
    },
    "additionalProperties": False,
}
_OBJECT: Final = {
    "description": "An object as Kubernetes writes it, as far as it is kept.",
    "type": "object",
    "properties": {
        "apiVersion": {"enum": ["v1", "apps/v1"]},
        "kind": {"enum": [kind.label for kind in Kind if kind is not Kind.RESERVATION]},
        "metadata": {"type": "object"},
    },
    "required": ["apiVersion", "kind", "metadata"],
}


def schema() -> str:
    """The text of docs/output.schema.json."""
    made = _Schema()
    documents = {
        "EvaluationList": made.items(
            Subject,
            "EvaluatePodResponse",
            fits=bool,
            constraints=tuple[topospread_client.ConstraintState, ...],
            top_nodes=tuple[NamedNode, ...],
            not_modelled=tuple[str, ...],
        ),
        "ExplanationList": made.items(
            Subject,
            "ExplainPodResponse",
            fits=bool,
            next_replica=NextReplica,
            optional=("next_replica",),
            without=["evaluation"],
        ),
        "PendingPodList": made.items(
            PendingWorkload,
            optional_head={"podCount": _INTEGER, "unexplainedPodCount": _INTEGER},
        ),
        "LintFindingList": made.closed({"items": made.type(tuple[LintItem, ...])}, ["items"]),
        "ConstraintList": made.items(
            "SpreadConstraint",
            "ConstraintStatus",
            one_revision=True,
            optional_head={"totals": made.type(tuple[topospread_client.SpreadStateCount, ...])},
            without=["id", "constraint"],
        ),
        "ConstraintDescriptionList": made.items(
            "SpreadConstraint",
            "ConstraintStatus",
            "GetConstraintResponse",
            without=["id", "constraint"],
        ),
        "PlacementList": made.items(Subject, "PlacePodResponse", optional=_OF_ONE),
        "ReleaseList": made.items("ReleaseReservationResponse", pod=topospread_client.PodReference),
        "ReservationList": made.items("Reservation", one_revision=True),
        "ObjectResultList": made.items(
            "ObjectResult", head=("Answer",), optional_head=_BESIDE_RESULTS
        ),
        "ReplacementList": made.items("ReplaceObjectsResponse", kind=topospread_client.Kind),
        "DeletionOrder": made.whole("RankDeletionsResponse"),
        "Simulation": made.whole("SimulateResponse", pods=tuple[Subject, ...]),
        "RebalancePlan": made.whole("PlanRebalanceResponse"),
        "ServerStatus": made.whole(
            "GetServerInfoResponse",
            address=str,
            clusters=tuple[topospread_client.Cluster, ...],
        ),
        "StoreAcceptance": made.whole("AcceptStoreResponse"),
        "ClusterDeletion": made.whole("DeleteClusterResponse"),
        "LeaseStatus": made.whole("GetLeaseResponse"),
        "WatchEvent": made.closed(
            {
                "cluster": _STRING,
                "revision": _STRING,
                "type": made.type(topospread_client.WatchEventType),
                "ref": made.type(topospread_client.ObjectReference),
                "object": made.object(),
            },
            ["cluster", "type"],
        ),
        "ConstraintEvent": made.closed(
            {
                "cluster": _STRING,
                "revision": _STRING,
                "type": made.type(topospread_client.WatchEventType),
                "constraint": made.joined(
                    "SpreadConstraint", "ConstraintStatus", without=["id", "constraint"]
                ),
            },
            ["cluster", "revision", "type", "constraint"],
        ),
        "Version": made.closed(
            {"version": _STRING, "pythonVersion": _STRING}, ["version", "pythonVersion"]
        ),
        "ConfigurationCheck": made.closed(
            {
                "profiles": {
                    "type": "array",
                    "items": made.closed(
                        {
                            "name": _STRING,
                            "defaultingType": _STRING,
                            "defaultConstraints": {"type": "array", "items": {"type": "object"}},
                        },
                        ["name", "defaultingType", "defaultConstraints"],
                    ),
                },
                "featureGates": {"type": "object", "additionalProperties": {"type": "boolean"}},
                "settings": _settings(made),
            },
            ["profiles", "featureGates", "settings"],
        ),
        "Error": made.closed({"error": _error(made)}, ["error"]),
    }
    assert not documents.keys() & made.definitions.keys()
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What topospread -o json prints",
        "oneOf": [{"$ref": f"#/$defs/{kind}"} for kind in (*documents, "List", "KubernetesObject")],
        "$defs": {
            **{kind: _titled(kind, each) for kind, each in documents.items()},
            "List": _titled(
                "List",
                made.closed(
                    {
                        "revision": _LISTED_AT,
                        "cluster": {"description": "Of a dump that is not anonymous.", **_STRING},
                        "metadata": {"description": "Of a dump, as kubectl's.", "type": "object"},
                        "items": {"type": "array", "items": made.object()},
                    },
                    ["revision", "items"],
                ),
                "v1",
            ),
            **made.definitions,
        },
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


_LISTED_AT: Final = {
    "description": "Of the state that was read. What was written meanwhile may be among the items"
    " of `get`; a dump is of one revision.",
    **_STRING,
}
_OWN_REVISION: Final = "Each is of a call of its own, and so of a revision of its own."

_OF_ONE: Final = ("node", "message", "not_modelled")
"""What `place` answers and `reserve`, which is of one node, does not."""

_BY_KIND: Final[Mapping[str, Any]] = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"kind": _STRING, "count": _INTEGER},
        "required": ["kind", "count"],
        "additionalProperties": False,
    },
}
_BESIDE_RESULTS: Final[Mapping[str, Any]] = {
    "skipped": {"description": "Objects of kinds that are not kept.", **_BY_KIND},
    "notInInput": {
        "description": "Other objects of the state, of kinds of which the input looks whole.",
        **_BY_KIND,
    },
}


def _settings(made: _Schema) -> dict[str, Any]:
    """Every setting by its key."""
    hints = get_type_hints(ServerSettings, localns={"Mapping": Mapping})
    written = {
        one.key: _DURATION
        if one.unit == "seconds"
        else _STRING
        if hints[one.name] in {values.Address, values.Address | None}
        else made.type(hints[one.name])
        for one in SETTINGS.values()
    }
    return made.closed(written, list(written))


def _error(made: _Schema) -> dict[str, Any]:
    violation = {
        **made.properties(Subject),
        **made.properties(topospread_client.Violation),
    }
    return made.closed(
        {
            "code": {"description": "Of gRPC; absent where no call failed.", **_STRING},
            "reason": {
                "description": "An ErrorReason, also where a call failed in such a way and no "
                "server told one. Else BAD_USAGE: the command line cannot be read; BAD_INPUT: "
                "what was given cannot be used; or OUT_OF_REACH: no answer came. A newer server "
                "may tell what is not among the examples.",
                "examples": [
                    *(each.value for each in topospread_client.ErrorReason),
                    "BAD_USAGE",
                    "BAD_INPUT",
                    "OUT_OF_REACH",
                ],
                **_STRING,
            },
            "message": _STRING,
            "metadata": {
                "description": "What the server told beside the reason, as `holder`.",
                "type": "object",
                "additionalProperties": _STRING,
            },
            "retryAfter": {
                "description": "How long to wait, where trying again helps.",
                **_DURATION,
            },
            "violations": {
                "description": "Of fields; with the pod that each is about, where a verb is asked "
                "about pods.",
                "type": "array",
                "items": made.closed(violation, []),
            },
        },
        ["reason", "message"],
    )


def _titled(kind: str, document: dict[str, Any], version: str = API_VERSION) -> dict[str, Any]:
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
        self.definitions: dict[str, Any] = {}

    def items(
        self,
        *parts: type | str,
        one_revision: bool = False,
        head: Sequence[str] = (),
        optional: Sequence[str] = (),
        optional_head: Mapping[str, Any] = MappingProxyType({}),
        without: Sequence[str] = (),
        **more: Any,
    ) -> dict[str, Any]:
        """A document with a list, each of whose items has the fields of all parts.

        Args:
            parts: types, or the names of the client's.
            one_revision: all items are of one.
            head: parts of the document itself.
            optional: fields that may be absent.
            optional_head: properties of the document itself that may be absent.
            without: fields of the parts that are not there.
            more: fields by name, also instead of the parts' own.
        """
        item = self._joined(parts, more, optional, without)
        if "revision" in item["properties"]:
            item = {"description": _OWN_REVISION, **item}
        document = self._joined(head, {}, ())
        if one_revision:
            document["properties"]["revision"] = _LISTED_AT
        document["properties"] = {
            "cluster": _STRING,
            **optional_head,
            **document["properties"],
            "items": {"type": "array", "items": item},
        }
        document["required"] = ["cluster", *document["required"], "items"]
        return document

    def joined(self, *parts: type | str, without: Sequence[str] = ()) -> dict[str, Any]:
        """An object with the fields of all parts."""
        return self._joined(parts, {}, (), without)

    def whole(
        self,
        *parts: type | str,
        optional: Mapping[str, type] = MappingProxyType({}),
        **more: Any,
    ) -> dict[str, Any]:
        """A document with the fields of an answer, and others, some of which may be absent."""
        document = self._joined(parts, more, ())
        beside = {camel(name): self.type(hint) for name, hint in optional.items()}
        document["properties"] = {"cluster": _STRING, **document["properties"], **beside}
        return document

    def properties(self, owner: type) -> dict[str, Any]:
        """The properties of a type."""
        return self._fields(owner)[0]

    @staticmethod
    def closed(properties: Mapping[str, Any], required: Sequence[str]) -> dict[str, Any]:
        """An object that has these properties and no others."""
        return {
            "type": "object",
            "properties": dict(properties),
            "required": list(required),
            "additionalProperties": False,
        }

    def _joined(
        self,
        parts: Sequence[type | str],
        more: Mapping[str, Any],
        optional: Sequence[str],
        without: Sequence[str] = (),
    ) -> dict[str, Any]:
        properties: dict[str, Any] = {}
        required: list[str] = []
        for part in parts:
            owner = _NAMES[part] if isinstance(part, str) else part
            found, needed = self._fields(owner, without)
            properties |= found
            required += [name for name in needed if name not in map(camel, optional)]
        for name, hint in more.items():
            if camel(name) not in properties and name not in optional:
                required.append(camel(name))
            properties[camel(name)] = self.type(hint)
        return self.closed(properties, required)

    def _fields(self, owner: type, without: Sequence[str] = ()) -> tuple[dict[str, Any], list[str]]:
        properties: dict[str, Any] = {}
        required: list[str] = []
        for each in fields(owner):
            if each.name in without:
                continue
            hint = _evaluated(str(each.type))
            if each.name == "traceparent":
                properties["traceId"] = _STRING
            elif each.name == "meta":
                found, _ = self._fields(topospread_client.ResponseMeta)
                properties |= found
            else:
                name = camel(each.name)
                may_lack = hint is str and each.name not in MEANT_EMPTY
                may_lack = may_lack or each.name in UNKNOWN_EMPTY
                if NoneType in get_args(hint):
                    may_lack = True
                if each.name in DURATIONS:
                    properties[name] = _DURATION
                else:
                    properties[name] = self.type(hint)
                if not may_lack:
                    required.append(name)
        return properties, required

    def object(self) -> dict[str, Any]:
        """The schema of an object of a cluster."""
        return self._defined("KubernetesObject", lambda: dict(_OBJECT))

    def type(self, hint: Any) -> dict[str, Any]:
        """The schema of a type."""
        if hint in _WRITTEN:
            return dict(_WRITTEN[hint])
        if hint is LabelSelector:
            return self._defined("LabelSelector", lambda: dict(_SELECTOR))
        origin, arguments = get_origin(hint), get_args(hint)
        if origin in {Union, UnionType}:
            kinds = [each for each in arguments if each is not NoneType]
            return self.type(kinds[0])
        if origin is not None and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.type(arguments[1])}
        if origin is not None and issubclass(origin, Sequence):
            return {"type": "array", "items": self.type(arguments[0])}
        if isinstance(hint, type) and issubclass(hint, Enum):
            constants = [constant(str(each.value)) for each in hint]
            return self._defined(hint.__name__, lambda: {"enum": constants})
        assert is_dataclass(hint), hint
        assert isinstance(hint, type)
        return self._defined(hint.__name__, lambda: self.closed(*self._fields(hint)))

    def _defined(self, name: str, make: Any) -> dict[str, Any]:
        if name not in self.definitions:
            self.definitions[name] = {}  # it may refer to itself
            self.definitions[name] = make()
        return {"$ref": f"#/$defs/{name}"}


def _evaluated(annotation: str) -> Any:
    """What an annotation means, whatever its module imports while it runs."""
    return eval(annotation, dict(_KNOWN))


_KNOWN: Final = {
    **_NAMES,
    "Severity": Severity,
    "LabelSelector": LabelSelector,
    "Mapping": Mapping,
    "Sequence": Sequence,
    "datetime": datetime,
    "kubernetes_pb2": kubernetes_pb2,
}
