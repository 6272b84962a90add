"""The requests of the benches as bytes: twenty pod shapes, a new pod name each time.

A question is serialized once with a place for the name; asking it again writes a number there. So
the client costs the same whatever is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bench.cluster import APPS, ARCH, HASH, HOSTNAME, REGION, ZONE, app_name, namespace_of
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as k8s
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import decision_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from google.protobuf.message import Message

CLUSTER: Final = "default"
SERVICE: Final = "/topospread.v1.DecisionService/"
EVALUATE_POD: Final = f"{SERVICE}EvaluatePod"

_DIGITS: Final = 10
_PLACE: Final = "#" * _DIGITS
_HARD: Final = "DoNotSchedule"
_SOFT: Final = "ScheduleAnyway"


@dataclass(frozen=True, slots=True)
class RequestTemplate:
    """A request with a place for a number.

    Attributes:
        before, after: the serialized message on both sides of the place.
    """

    before: bytes
    after: bytes

    def numbered(self, number: int) -> bytes:
        """The message that asks about the pod with this number."""
        return b"%b%010d%b" % (self.before, number, self.after)


def request_template(message: Message) -> RequestTemplate:
    """A question out of a request about a pod of :func:`incoming_pods`."""
    return template_from_bytes(message.SerializeToString())


def template_from_bytes(request: bytes) -> RequestTemplate:
    """The same out of a request's bytes."""
    before, _, after = request.partition(_PLACE.encode())
    return RequestTemplate(before, after)


def evaluate_pod_requests(pods: Iterable[k8s.Pod], cluster: str = CLUSTER) -> list[RequestTemplate]:
    """DecisionService.EvaluatePod, one a pod."""
    return [
        request_template(
            pb.EvaluatePodRequest(cluster=cluster, pod=common_pb2.PodSource(object=pod))
        )
        for pod in pods
    ]


def incoming_pods() -> list[k8s.Pod]:
    """Twenty pods that wait: four with a hard zone, four with a hostname beside it, and so on."""
    return [
        _pod(0, _on(0, ZONE, _HARD)),
        *(_pod(app, _on(app, ZONE, _HARD, skew=300)) for app in (3, 7, 19)),
        *(
            _pod(app, _on(app, ZONE, _HARD, skew=skew), _on(app, HOSTNAME, _HARD, skew=own))
            for app, skew, own in ((1, 1, 1), (4, 490, 1), (8, 580, 2), (18, 300, 1))
        ),
        *(
            _pod(app, _on(app, ZONE, _SOFT, skew=skew), _on(app, HOSTNAME, _SOFT))
            for app, skew in ((0, 1), (2, 3), (9, 1), (17, 5))
        ),
        *(_owned(app) for app in (0, 5, 16)),
        _pod(6, _on(6, ZONE, _HARD, min_domains=5)),
        _pod(15, _on(15, HOSTNAME, _HARD, min_domains=5001)),
        *_with_affinity(),
    ]


def unconstrained_pods() -> list[k8s.Pod]:
    """Twenty pods that nothing spreads: no constraints, and no workload selects them."""
    pods = []
    for app in range(APPS):
        pod = _pod(app)
        pod.metadata.labels["app"] = f"batch-{app:02}"
        pods.append(pod)
    return pods


def pods_of_each_app(apps: int) -> list[k8s.Pod]:
    """A pod of each app, spread over zones: as many selectors as apps."""
    return [_pod(app, _on(app, ZONE, _HARD, skew=1000)) for app in range(apps)]


def pod_with_new_selector(app: int, number: int) -> k8s.Pod:
    """A pod whose selector was never used before; it matches the pods of an app."""
    constraint = _on(app, ZONE, _HARD, skew=1000)
    constraint.label_selector.match_expressions.add(
        key="tier", operator="NotIn", values=[f"tier-{number}"]
    )
    return _pod(app, constraint)


def _pod(app: int, *constraints: k8s.TopologySpreadConstraint, **spec: Any) -> k8s.Pod:
    return k8s.Pod(
        metadata=k8s.ObjectMeta(
            name=f"incoming-{_PLACE}",
            namespace=namespace_of(app),
            uid="fe7e511c-3e42-5393-9ea4-44c4a72435a5",
            labels={"app": app_name(app), HASH: "77b9d6", "tier": "fe"},
        ),
        spec=k8s.PodSpec(
            containers=[k8s.Container(name="c")], topology_spread_constraints=constraints, **spec
        ),
        status=k8s.PodStatus(phase="Pending"),
    )


def _on(
    app: int, key: str, when: str, *, skew: int = 1, **fields: Any
) -> k8s.TopologySpreadConstraint:
    return k8s.TopologySpreadConstraint(
        max_skew=skew,
        topology_key=key,
        when_unsatisfiable=when,
        label_selector=k8s.LabelSelector(match_labels={"app": app_name(app)}),
        **fields,
    )


def _owned(app: int) -> k8s.Pod:
    """A pod of a ReplicaSet that the System defaults spread."""
    pod = _pod(app)
    pod.metadata.owner_references.add(
        api_version="apps/v1",
        kind="ReplicaSet",
        name=f"{app_name(app)}-77b9d6",
        uid="6fa963b1-7a89-5b48-b5c1-ffff047b0b01",
        controller=True,
    )
    return pod


def _with_affinity() -> Sequence[k8s.Pod]:
    return [
        _pod(
            0,
            _on(0, ZONE, _HARD, skew=5),
            _on(0, HOSTNAME, _SOFT),
            affinity=_affinity([("pool", "In", ["general", "mem"]), (ARCH, "In", ["amd64"])]),
        ),
        _pod(
            10,
            _on(10, ZONE, _HARD, skew=240, node_taints_policy="Honor"),
            _on(10, HOSTNAME, _HARD, match_label_keys=[HASH]),
            node_selector={ARCH: "arm64"},
        ),
        _pod(
            2,
            _on(2, ZONE, _SOFT, node_taints_policy="Honor"),
            _on(2, REGION, _SOFT, skew=2),
            affinity=_affinity([(ZONE, "NotIn", ["zone-b"])], [("pool", "In", ["gpu"])]),
            tolerations=[k8s.Toleration(key="dedicated", operator="Exists")],
        ),
    ]


def _affinity(*terms: Sequence[tuple[str, str, Sequence[str]]]) -> k8s.Affinity:
    required = k8s.NodeSelector(
        node_selector_terms=[
            k8s.NodeSelectorTerm(
                match_expressions=[
                    k8s.NodeSelectorRequirement(key=key, operator=operator, values=values)
                    for key, operator, values in term
                ]
            )
            for term in terms
        ]
    )
    return k8s.Affinity(
        node_affinity=k8s.NodeAffinity(required_during_scheduling_ignored_during_execution=required)
    )
