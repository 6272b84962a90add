"""Every repeated field and map of every request, and requests in which one of them has grown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor

from bench.campaigns.measured import HOSTNAME, ZONE
from topospread.codec.parsing import limit_of
from topospread.generated.cluster_autoscaler import expander_pb2
from topospread_proto.kubernetes.v1 import kubernetes_pb2
from topospread_proto.v1 import (
    cluster_state_service_pb2,
    common_pb2,
    decision_service_pb2,
    inspector_service_pb2,
    placement_service_pb2,
    planner_service_pb2,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FILES: Any = (
    decision_service_pb2,
    inspector_service_pb2,
    placement_service_pb2,
    planner_service_pb2,
    cluster_state_service_pb2,
    expander_pb2,
)
PLANS = ("ExplainPod", "Simulate", "RankDeletions", "PlanRebalance", "BestOptions")
DECISIONS = ("PreFilter", "Filter", "Score", "EvaluatePod", "BatchEvaluatePods")
PLACEMENTS = ("PlacePod", "ReserveNode")

OPERATORS = ("In", "NotIn", "Gt", "Lt", "Exists")

ANOTHER = "another"
"""The cluster that is written to, so that the one that is asked about stays what it was."""

_MESSAGE = FieldDescriptor.TYPE_MESSAGE


@dataclass(frozen=True)
class Growth:
    """A repeated field of a method's request.

    Attributes:
        method: as gRPC names it.
        request: its message.
        path: the fields that lead to it, itself the last.
        plain: a request that is answered.
        operator: of expressions on hostnames, if not what is usual.
    """

    method: str
    request: Any
    path: tuple[Any, ...]
    plain: Callable[[], Any]
    operator: str = ""

    @property
    def name(self) -> str:
        """How a failure tells it."""
        path = ".".join(field.name for field in self.path)
        return f"{self.method.rpartition('.')[2]} {path} {self.operator}".rstrip()

    @property
    def verb(self) -> str:
        """The method's own name."""
        return self.method.rpartition("/")[2]

    @property
    def limit(self) -> int:
        """How often the field may be repeated in one message."""
        return limit_of(self.path[-1])

    def of(self, count: int, *, empty: bool = False, attempt: int = 0) -> bytes:
        """The request with so many items, each another one unless they are to be empty.

        What is asked of nodes differs with the attempt: the answer would be remembered.
        """
        request = self.plain()
        message = request
        for field in self.path[:-1]:
            here = getattr(message, field.name)
            if field.is_repeated:
                here = here[0] if len(here) else _filled(here.add(), 0)
            else:
                here.SetInParent()
            message = here
        _grow(message, self.path[-1], count, empty=empty)
        if self.operator and not empty:
            grown = getattr(message, self.path[-1].name)
            for each in grown if self.path[-1].type == _MESSAGE else [message]:
                each.key, each.operator = HOSTNAME, self.operator
                if self.operator in ("Gt", "Lt"):
                    each.values[:] = [str(len(each.values) + attempt)]
                else:
                    each.values[0] = f"x-of-{attempt}"
        sent: bytes = request.SerializeToString()
        return sent


def growths() -> Iterator[Growth]:
    """Every repeated field that a caller can send, by method and path."""
    for file in FILES:
        for service in file.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                request = method.input_type
                for path in _paths(request, ()):
                    name = f"/{service.full_name}/{method.name}"
                    yield Growth(name, request, path, _plain(request))
                    if method.name in ("EvaluatePod", "PlacePod") and _asks_of_nodes(path):
                        for operator in OPERATORS:
                            yield Growth(name, request, path, _plain(request), operator)


def _asks_of_nodes(path: tuple[Any, ...]) -> bool:
    """Whether expressions on labels of nodes, or their values, grow in what a pod requires."""
    required = any(f.name.startswith("required") for f in path)
    of = [f.message_type.name for f in path if f.message_type is not None]
    return (
        required
        and of[-1] == "NodeSelectorRequirement"
        and "match_expressions"
        in (
            path[-1].name,
            path[-2].name,
        )
    )


def _paths(message: Any, before: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    for field in message.fields:
        inner = field.message_type
        if inner is not None and any(inner is f.message_type for f in before):
            continue  # it holds itself
        path = (*before, field)
        if field.is_repeated:
            yield path
        if inner is not None and not inner.GetOptions().map_entry:
            yield from _paths(inner, path)


def _grow(message: Any, field: Any, count: int, *, empty: bool) -> None:
    items = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        value = field.message_type.fields_by_name["value"]
        for number in range(count):
            key = f"example.com/k{number}"
            if value.type == _MESSAGE:
                _filled(items[key], number)
            else:
                items[key] = _value(value, number)
        return
    del items[:]
    for number in range(count):
        if field.type == _MESSAGE:
            item = items.add()
            if not empty:
                _filled(item, number)
        else:
            items.append(_value(field, 0 if empty else number))


_PARTS = ("metadata", "pod", "object", "node", "label_selector", "template", "match", "set")
"""Messages without which the ones that hold them are refused."""

_TEXTS = {
    "topology_key": lambda i: HOSTNAME if i % 2 else ZONE,
    "when_unsatisfiable": lambda i: "DoNotSchedule" if i % 4 < 2 else "ScheduleAnyway",
    "operator": lambda i: "NotIn" if i % 2 else "In",
    "string": lambda _: "1",
    "node": lambda i: f"node-{i % 50}",
    "node_name": lambda i: f"node-{i % 50}",
    "effect": lambda _: "NoSchedule",
    "restart_policy": lambda _: "Always",
    "node_table_id": lambda _: "",
    "cluster": lambda _: "",
    "node_taints_policy": lambda _: "Honor",
    "node_affinity_policy": lambda _: "Honor",
    "scheduler_name": lambda _: "",
    "resource_version": lambda _: "",
    "defaulting_type": lambda _: "List",
}


def _value(field: Any, number: int) -> Any:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_STRING:
        if field.type == FieldDescriptor.TYPE_BYTES:
            return _filled(kubernetes_pb2.Pod(), number).SerializeToString()
        return _TEXTS.get(field.name, lambda i: f"x-{i}")(number)
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return True
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return 1
    return float(number + 1) if kind == FieldDescriptor.CPPTYPE_DOUBLE else number % 50 + 1


def _filled(message: Any, number: int) -> Any:
    """Give a message scalars, and a sub-message of each kind that a pod cannot do without."""
    for field in message.DESCRIPTOR.fields:
        if field.containing_oneof is not None and message.WhichOneof(field.containing_oneof.name):
            continue
        if field.is_repeated:
            continue
        if field.type != _MESSAGE:
            if field.name not in ("replicas", "seconds", "nanos", "clear_min_domains"):
                setattr(message, field.name, _value(field, number))
        elif field.name in _PARTS:
            _filled(getattr(message, field.name), number)
    if message.DESCRIPTOR.name == "ObjectMeta":
        message.namespace, message.labels["app"] = "default", f"app-{number % 7}"
    if message.DESCRIPTOR.name == "LabelSelector":
        message.match_labels["app"] = f"new-{number}"
    if message.DESCRIPTOR.name == "NodeSelectorRequirement":
        message.values.append("x")
    return message


def pod() -> Any:
    """A pod that spreads over zones."""
    made = kubernetes_pb2.Pod()
    made.metadata.name = "incoming"
    made.metadata.labels["app"] = "app-1"
    constraint = made.spec.topology_spread_constraints.add()
    constraint.max_skew, constraint.topology_key = 5, ZONE
    constraint.when_unsatisfiable = "DoNotSchedule"
    constraint.label_selector.match_labels["app"] = "app-1"
    made.spec.containers.add().resources.requests["cpu"].string = "100m"
    return made


def _plain(request: Any) -> Callable[[], Any]:
    """A request that is answered, or at least read to its end."""
    kind: Any = message_factory.GetMessageClass(request)

    def make() -> Any:
        made = kind()
        field = made.DESCRIPTOR.fields_by_name.get("pod")
        if field is not None and field.message_type.name == "PodSource":
            made.pod.object.CopyFrom(pod())
        match request.name:
            case "BatchEvaluatePodsRequest":
                made.pods.add().object.CopyFrom(pod())
            case "SimulateRequest":
                made.pods.add().pod.object.CopyFrom(pod())
            case "ReserveNodeRequest":
                made.node = "node-1"
            case "RankDeletionsRequest":
                made.label_selector.match_labels["app"] = "app-1"
            case "ListObjectsRequest":
                made.kind = common_pb2.KIND_POD
            case "ReplaceObjectsRequest":
                made.start.kind = common_pb2.KIND_POD
                made.start.cluster = ANOTHER
            case "ApplyObjectsRequest" | "DeleteObjectsRequest":
                made.cluster = ANOTHER
        return made

    return make
