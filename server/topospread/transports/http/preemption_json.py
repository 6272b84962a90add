"""The scheduler extender's messages about preemption; see :mod:`.extender_json` for their keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from topospread.errors import FieldViolation, InvalidRequest
from topospread.kube.objects import DEFAULT_NAMESPACE
from topospread.kube.violations import required
from topospread.service.victims import Victim
from topospread.transports.http.extender_json import lower_case, members, read_pod

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from topospread.codec.json_pods import Fields, JsonPod


_OfPod = Callable[[str, object], Victim]
"""From a path and what stands there."""


@dataclass(frozen=True, slots=True)
class NodeVictims:
    """Pods of one node that would be removed.

    Attributes:
        violations: budgets (PodDisruptionBudget) that this would violate, as the scheduler counted.
    """

    victims: Sequence[Victim]
    violations: int


@dataclass(frozen=True, slots=True)
class PreemptionArgs:
    """A pod, and by node those that could make room for it."""

    pod: JsonPod
    nodes: Mapping[str, NodeVictims]


def read_preemption(body: bytes) -> PreemptionArgs:
    """What preempt is asked.

    Raises:
        InvalidRequest: it is not what a scheduler sends.
    """
    given = members(body, "ExtenderPreemptionArgs")
    pod = read_pod(given)
    for name, of_pod in (
        ("NodeNameToMetaVictims", _meta_victim),
        ("NodeNameToVictims", _victim),
    ):
        nodes = given.get(name.lower())
        if nodes is None:
            continue
        if not isinstance(nodes, dict):
            raise InvalidRequest.of([FieldViolation(name, "must be an object")])
        found = {
            node: _victims_of(f"{name}[{node}]", victims, of_pod) for node, victims in nodes.items()
        }
        return PreemptionArgs(pod, found)
    text = (
        "NodeNameToVictims and NodeNameToMetaVictims are both null: a scheduler sends the second if"
        " the extender is nodeCacheCapable, and the first if not"
    )
    raise InvalidRequest.of([required("NodeNameToMetaVictims", text)])


def preemption_result(args: PreemptionArgs, kept: Iterable[str]) -> bytes:
    """An ExtenderPreemptionResult: meta victims, whatever was sent."""
    nodes = {
        name: {
            "Pods": [{"UID": victim.uid} for victim in args.nodes[name].victims],
            "NumPDBViolations": args.nodes[name].violations,
        }
        for name in kept
    }
    return orjson.dumps({"NodeNameToMetaVictims": nodes})


def _victims_of(path: str, given: object, of_pod: _OfPod) -> NodeVictims:
    if given is None:
        return NodeVictims((), 0)
    fields = lower_case(given, path)
    pods, violations = fields.get("pods"), fields.get("numpdbviolations")
    if pods is None:
        pods = []
    if not isinstance(pods, list):
        raise InvalidRequest.of([FieldViolation(f"{path}.Pods", "must be an array")])
    if violations is None:
        violations = 0
    if not isinstance(violations, int) or isinstance(violations, bool):
        raise InvalidRequest.of(
            [FieldViolation(f"{path}.NumPDBViolations", "must be a whole number")]
        )
    found = [of_pod(f"{path}.Pods[{index}]", each) for index, each in enumerate(pods)]
    return NodeVictims(found, violations)


def _meta_victim(path: str, given: object) -> Victim:
    return Victim(_text(f"{path}.UID", lower_case(given, path).get("uid")))


def _victim(path: str, given: object) -> Victim:
    if not isinstance(given, dict):
        raise InvalidRequest.of([FieldViolation(path, "must be an object")])
    meta: Fields = given.get("metadata") or {}
    if not isinstance(meta, dict):
        raise InvalidRequest.of([FieldViolation(f"{path}.metadata", "must be an object")])
    return Victim(
        _text(f"{path}.metadata.uid", meta.get("uid")),
        _text(f"{path}.metadata.name", meta.get("name")),
        _text(f"{path}.metadata.namespace", meta.get("namespace") or DEFAULT_NAMESPACE),
    )


def _text(path: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidRequest.of([required(path, "must be a string that is not empty")])
    return value
