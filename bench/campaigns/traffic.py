"""Requests that two servers answer alike: recorded questions and examples, mutated.

What depends on the moment or on one server alone is taken out: short times, revisions, tokens.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.descriptor_pb2 import MethodOptions
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.text_format import MessageToString

from bench.campaigns.fuzz import example
from bench.campaigns.mutation import mutated_bytes, mutated_message
from tests.golden.questions import HOUR, METHODS, NOON, NOW
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as kubernetes

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from random import Random

    from google.protobuf.descriptor import MethodDescriptor
    from google.protobuf.message import Message

SMALL: Final = ("default", "sample", "report")
"""Clusters that are only read; they are written before."""

LARGE: Final = "large"

_ELSEWHERE: Final = frozenset({"GetServerInfo", "ListClusters"})
"""Methods that say something of all clusters, and one that names a store: asked once, unchanged."""

_APPS: Final = ("web", "checkout", "cart", "agent", "orders-db", "app-00", "app-03", "app-09")
_NAMESPACES: Final = ("default", "shop", "data", "prod", "stage")
_HASHES: Final = ("77b9d6", "5d4f8c", "6d4b")
_KEYS: Final = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "kubernetes.io/hostname",
    "example.com/rack",
    "kubernetes.io/arch",
)
_VALUES: Final = ("eu-central-a", "zone-a", "a", "amd64", "region-1", "a1", "node-00017")
"""Labels of the clusters that are asked about."""

_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_PLANS: Final = frozenset({"Simulate", "PlanRebalance"})
"""Methods that take long on a large cluster."""


@dataclass(frozen=True, slots=True)
class Request:
    """A call to send.

    Attributes:
        messages: as bytes.
        shown: the same for people.
    """

    path: str
    method: MethodDescriptor
    messages: Sequence[bytes]
    shown: str


class Traffic:
    """Draws requests.

    Args:
        asked: requests that are known to be answered; mutations begin with them.
        paths: methods that both servers have.
        gained: names that the new server alone has, see Api.names.
    """

    def __init__(
        self,
        asked: Sequence[Sequence[Message]],
        paths: Collection[str],
        gained: Collection[str] = (),
    ) -> None:
        self._gained = gained
        self._asked: dict[str, list[Sequence[Message]]] = {}
        for messages in asked:
            path, _ = METHODS[messages[0].DESCRIPTOR.full_name]
            self._asked.setdefault(path, []).append(messages)
        reads: list[tuple[str, MethodDescriptor]] = []
        writes: list[tuple[str, MethodDescriptor]] = []
        for path, method in METHODS.values():
            if path in paths and method.name not in _ELSEWHERE:
                (reads if _only_reads(method) else writes).append((path, method))
        self._reads, self._writes = reads, writes

    def read(self, random: Random) -> Request:
        """Draw a request that changes nothing."""
        path, method = random.choice(self._reads)
        large = method.name not in _PLANS and random.random() < 0.2
        cluster = LARGE if large else random.choice(SMALL)
        return self._draw(path, method, cluster, random)

    def write(self, cluster: str, random: Random) -> Request:
        """Draw a request that may change a cluster, or asks for its newest state."""
        path, method = random.choice(self._writes if random.random() < 0.7 else self._reads)
        return self._draw(path, method, cluster, random, newest=True)

    def _draw(
        self,
        path: str,
        method: MethodDescriptor,
        cluster: str,
        random: Random,
        *,
        newest: bool = False,
    ) -> Request:
        known = self._asked.get(path, [])
        kind: Any = GetMessageClass(method.input_type)
        if known and random.random() < 0.85:
            messages = [_copy(each) for each in random.choice(known)]
        else:
            messages = [example(kind, random)]
        for message in messages:
            _forget(message)
        if random.random() < 0.5:
            for message in messages:
                _ask_about_another_pod(message, random)
        for _ in range(random.choice((0, 0, 0, 1, 2))):
            mutated_message(random.choice(messages), random)
        for message in messages:
            settle(message, cluster, newest=newest)
            self._leave_out(message)
        raws = [each.SerializeToString() for each in messages]
        shown = "; ".join(MessageToString(each, as_one_line=True) for each in messages)
        if random.random() < 0.1:
            at = random.randrange(len(raws))
            # A read cannot do harm elsewhere; a write of broken bytes could name any cluster.
            broken = mutated_bytes(raws[at], random)
            if not newest or _unreadable(kind, broken):
                raws[at] = broken
                shown = repr(raws)
        return Request(path, method, raws, shown)

    def _leave_out(self, message: Any) -> None:
        """Take out the fields that the old server does not know: it would do something else."""
        for field, held in message.ListFields():
            if f"field {field.containing_type.name}.{field.name}" in self._gained:
                message.ClearField(field.name)
            elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
                for each in held if field.is_repeated else (held,):
                    self._leave_out(each)


def settle(message: Any, cluster: str, *, newest: bool = False) -> None:
    """Name a cluster where a message names one, and take out what depends on the moment.

    Args:
        message: to change.
        cluster: instead of any that the message names by a valid name.
        newest: whether it asks for the newest state.
    """
    fields = message.DESCRIPTOR.fields_by_name
    if "evaluate" in fields:
        settle(message.evaluate, cluster, newest=newest)
    if "start" in fields and message.HasField("start"):
        settle(message.start, cluster)
    if "cluster" in fields and (not message.cluster or _DNS_LABEL.fullmatch(message.cluster)):
        message.cluster = cluster
    if "consistency" in fields:
        if newest:
            message.consistency.CopyFrom(NOW)
        elif message.consistency.HasField("max_staleness"):
            message.consistency.ClearField("max_staleness")
    if "reservation_ttl" in fields and 0 <= message.reservation_ttl.seconds < HOUR.seconds:
        message.reservation_ttl.CopyFrom(HOUR)
    if "settings" in fields:
        _settle_gates(message.settings)
    if "scenario" in fields:
        _settle_gates(message.scenario.settings)
    if "search_timeout" in fields:
        message.ClearField("search_timeout")
    if "evaluation_time" in fields and not message.HasField("evaluation_time"):
        message.evaluation_time.CopyFrom(NOON)


def _settle_gates(settings: Any) -> None:
    """Leave at most one: each process has an order of its own for the keys of a map."""
    if len(settings.feature_gates) > 1:
        settings.feature_gates.clear()


def _ask_about_another_pod(message: Any, random: Random) -> None:
    """Put made-up pods, with constraints that make sense, into a request's places for pods."""
    fields = message.DESCRIPTOR.fields_by_name
    if "evaluate" in fields:
        _ask_about_another_pod(message.evaluate, random)
    elif "pod" in fields and fields["pod"].message_type.name == "PodSource":
        message.pod.object.CopyFrom(made_up_pod(random))
    elif "pods" in fields:
        for each in message.pods:
            kind = each.DESCRIPTOR.name
            source = each.pod if kind == "PodsToPlace" else each
            if kind in ("PodsToPlace", "PodSource"):
                source.object.CopyFrom(made_up_pod(random))


def made_up_pod(random: Random) -> kubernetes.Pod:
    """Return a pod whose constraints, selectors and policies are drawn from those that exist."""
    app = random.choice(_APPS)
    made = kubernetes.Pod(
        metadata=kubernetes.ObjectMeta(
            name=f"made-up-{random.randrange(50)}",
            namespace=random.choice(_NAMESPACES),
            labels={"app": app, "pod-template-hash": random.choice(_HASHES)},
        )
    )
    for _ in range(random.choice((0, 1, 1, 2, 2, 3))):
        constraint = made.spec.topology_spread_constraints.add(
            max_skew=random.choice((1, 1, 2, 3, 5, 40)),
            topology_key=random.choice(_KEYS),
            when_unsatisfiable=random.choice(("DoNotSchedule", "ScheduleAnyway")),
        )
        if random.random() < 0.9:
            chosen = app if random.random() < 0.8 else random.choice(_APPS)
            constraint.label_selector.match_labels["app"] = chosen
        if random.random() < 0.2:
            constraint.label_selector.match_expressions.add(
                key=random.choice(("tier", "pod-template-hash")),
                operator=random.choice(("In", "NotIn")),
                values=random.sample((*_HASHES, "fe", "backend"), 2),
            )
        if random.random() < 0.2 and constraint.when_unsatisfiable == "DoNotSchedule":
            constraint.min_domains = random.choice((1, 3, 6))
        if random.random() < 0.3:
            constraint.node_affinity_policy = random.choice(("Honor", "Ignore"))
        if random.random() < 0.3:
            constraint.node_taints_policy = random.choice(("Honor", "Ignore"))
        if random.random() < 0.2:
            constraint.match_label_keys.append("pod-template-hash")
    if random.random() < 0.3:
        made.spec.node_selector[random.choice(_KEYS)] = random.choice(_VALUES)
    if random.random() < 0.2:
        made.spec.tolerations.add(operator="Exists")
    if random.random() < 0.3:
        container = made.spec.containers.add(name="main")
        container.resources.requests["cpu"].string = random.choice(("100m", "2", "64"))
    return made


def _copy(message: Message) -> Message:
    copied = type(message)()
    copied.CopyFrom(message)
    return copied


def _forget(message: Any) -> None:
    """Take out what another server said."""
    fields = message.DESCRIPTOR.fields_by_name
    for name in ("revision", "page_token", "cycle", "reservation_id"):
        if name in fields:
            message.ClearField(name)
    if "consistency" in fields and message.consistency.HasField("at_least_as_fresh"):
        message.ClearField("consistency")


def _unreadable(kind: Any, raw: bytes) -> bool:
    try:
        kind.FromString(raw)
    except DecodeError:
        return True
    return False


def _only_reads(method: MethodDescriptor) -> bool:
    options: Any = method.GetOptions()
    no_effects = MethodOptions.IdempotencyLevel.Value("NO_SIDE_EFFECTS")
    return method.name == "BestOptions" or options.idempotency_level == no_effects
