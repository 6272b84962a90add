"""The scheduler extender's messages: Go structs without JSON tags.

Keys are read whatever their case, as Go does, because schedulers before 1.16 wrote them in lower
case, and answered as Go names its fields. Source: k8s.io/kube-scheduler, extender/v1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from topospread.codec.frames import Fields, JsonPod, json_node, json_pod
from topospread.errors import InvalidRequest
from topospread.kube.objects import DEFAULT_NAMESPACE
from topospread.kube.violations import required
from topospread.service.extender.preemption import Victim

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from topospread.codec.frames import Fields, JsonPod
    from topospread.service.extender.extend import Describe


_NAMED: Final = "Pod"

_OfPod = Callable[[str, object], Victim]
"""From a path and what stands there."""


@dataclass(frozen=True, slots=True)
class ExtenderArgs:
    """A pod and the nodes that are left for it.

    Attributes:
        names: of the nodes, in the request's order.
        nodes: the nodes as they were sent; None where only names were (nodeCacheCapable).
    """

    pod: JsonPod
    names: Sequence[str]
    nodes: Sequence[Fields] | None

    @property
    def describe(self) -> Describe | None:
        """Reads nodes of the request; None where it has names only."""
        nodes = self.nodes
        if nodes is None:
            return None
        by_name = dict(zip(self.names, nodes, strict=True))
        return lambda names: [json_node(by_name[name]) for name in names]


def _members(body: bytes, what: str) -> Fields:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as cause:
        where = f"line {cause.lineno}, column {cause.colno}"
        raise InvalidRequest(f"the body is no {what} in JSON: {cause.msg} at {where}") from cause
    if not isinstance(found, dict):
        raise InvalidRequest(f"the body is no {what}: it must be a JSON object")
    return _lower_case(found, what)


def _lower_case(fields: object, path: str) -> Fields:
    """The members of an object by their names in lower case."""
    if not isinstance(fields, dict):
        raise InvalidRequest.at(path, "must be an object")
    return {name.lower(): value for name, value in fields.items()}


def read_args(body: bytes) -> ExtenderArgs:
    """The arguments of filter and prioritize.

    Raises:
        InvalidRequest: it is not what a scheduler sends.
    """
    given = _members(body, "ExtenderArgs")
    pod = _pod(given)
    names, nodes = given.get("nodenames"), given.get("nodes")
    if names is not None:
        if not isinstance(names, list) or not set(map(type, names)) <= {str}:
            raise InvalidRequest.at("NodeNames", "must be an array of strings")
        return ExtenderArgs(pod, names, None)
    if nodes is None:
        text = (
            "NodeNames and Nodes are both null: a scheduler sends the first if the extender is"
            " nodeCacheCapable, and the second if not"
        )
        raise InvalidRequest.of([required("NodeNames", text)])
    items = _items(nodes)
    return ExtenderArgs(pod, list(map(_name_of, range(len(items)), items)), items)


def _pod(given: Fields) -> JsonPod:
    pod = given.get("pod")
    if pod is None:
        raise InvalidRequest.of([required(_NAMED, "")])
    if not isinstance(pod, dict):
        raise InvalidRequest.at(_NAMED, "must be an object")
    return json_pod(pod)


def filter_result(
    args: ExtenderArgs,
    fit: Sequence[str],
    refused: dict[str, str],
    unresolvable: dict[str, str],
) -> bytes:
    """An ExtenderFilterResult, with nodes or names as the request had them."""
    names, nodes = fit, None
    if args.nodes is not None:
        kept = set(fit)
        chosen = [n for name, n in zip(args.names, args.nodes, strict=True) if name in kept]
        nodes = {"metadata": {}, "items": chosen}
    return _filter_result(nodes, names if nodes is None else None, refused, unresolvable, "")


def filter_error(text: str) -> bytes:
    """An ExtenderFilterResult that says why there is none; kube-scheduler shows it on the pod."""
    return _filter_result(None, None, None, None, text)


def _filter_result(*values: object) -> bytes:
    names = ("Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error")
    return orjson.dumps(dict(zip(names, values, strict=True)))


def priority_list(names: Sequence[str], scores: Sequence[int]) -> bytes:
    """A HostPriorityList."""
    pairs = zip(names, scores, strict=True)
    return orjson.dumps([{"Host": name, "Score": score} for name, score in pairs])


def _items(nodes: object) -> list[Fields]:
    if isinstance(nodes, dict):
        items = _lower_case(nodes, "Nodes").get("items")
        if items is None:
            return []
        if isinstance(items, list):
            return items
    raise InvalidRequest.at("Nodes", "must be an object with an array of items")


def _name_of(index: int, node: object) -> str:
    meta = node.get("metadata") if isinstance(node, dict) else None
    name = meta.get("name") if isinstance(meta, dict) else None
    if not isinstance(name, str) or not name:
        path = f"Nodes.items[{index}].metadata.name"
        raise InvalidRequest.of([required(path, "a node has a name")])
    return name


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
    """The arguments of preempt.

    Raises:
        InvalidRequest: it is not what a scheduler sends.
    """
    given = _members(body, "ExtenderPreemptionArgs")
    pod = _pod(given)
    for name, of_pod in (
        ("NodeNameToMetaVictims", _meta_victim),
        ("NodeNameToVictims", _victim),
    ):
        nodes = given.get(name.lower())
        if nodes is None:
            continue
        if not isinstance(nodes, dict):
            raise InvalidRequest.at(name, "must be an object")
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
    fields = _lower_case(given, path)
    pods, violations = fields.get("pods"), fields.get("numpdbviolations")
    if pods is None:
        pods = []
    if not isinstance(pods, list):
        raise InvalidRequest.at(f"{path}.Pods", "must be an array")
    if violations is None:
        violations = 0
    if not isinstance(violations, int) or isinstance(violations, bool):
        raise InvalidRequest.at(f"{path}.NumPDBViolations", "must be a whole number")
    found = [of_pod(f"{path}.Pods[{index}]", each) for index, each in enumerate(pods)]
    return NodeVictims(found, violations)


def _meta_victim(path: str, given: object) -> Victim:
    return Victim(_required_text(f"{path}.UID", _lower_case(given, path).get("uid")))


def _victim(path: str, given: object) -> Victim:
    if not isinstance(given, dict):
        raise InvalidRequest.at(path, "must be an object")
    meta: Fields = given.get("metadata") or {}
    if not isinstance(meta, dict):
        raise InvalidRequest.at(f"{path}.metadata", "must be an object")
    return Victim(
        _required_text(f"{path}.metadata.uid", meta.get("uid")),
        _required_text(f"{path}.metadata.name", meta.get("name")),
        _required_text(f"{path}.metadata.namespace", meta.get("namespace") or DEFAULT_NAMESPACE),
    )


def _required_text(path: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidRequest.of([required(path, "must be a string that is not empty")])
    return value
