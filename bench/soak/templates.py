"""The Kubernetes objects of a soak: nodes, workloads, and pods by their template."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.cluster import HASH, HOSTNAME, ZONE
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as k8s

if TYPE_CHECKING:
    from collections.abc import Mapping

HARD: Final = "DoNotSchedule"
SOFT: Final = "ScheduleAnyway"
ZONES: Final = ("zone-a", "zone-b", "zone-c")
JOB: Final = "job-name"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
CORDONED: Final = "node.kubernetes.io/unschedulable"
REQUESTS: Final = {"cpu": "250m", "memory": "256Mi"}
OFFER: Final = {"cpu": "64", "memory": "256Gi", "pods": "110"}

_ANY_SKEW: Final = 1000
"""Of hard constraints that are to be judged on all nodes and to refuse none."""


@dataclass(frozen=True, slots=True)
class Template:
    """The pod template of one revision of an application, or of one job.

    Attributes:
        revision: of an application, counted from 1; 0 for a job.
        way: decides which spread constraints the pods have.
    """

    namespace: str
    name: str
    revision: int
    way: int

    @property
    def hash(self) -> str:
        """The value of pod-template-hash."""
        return f"r{self.revision}"

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of each pod."""
        if not self.revision:
            return {JOB: self.name, "controller-uid": f"uid-{self.name}"}
        return {"app": self.name, HASH: self.hash}

    @property
    def owner(self) -> str:
        """The name of the ReplicaSet or Job."""
        return f"{self.name}-{self.hash}" if self.revision else self.name


def name_of(template: Template, number: int) -> str:
    """A pod's name."""
    return f"{template.name}-{number:07}"


def pending_pod(template: Template, number: int) -> k8s.Pod:
    """A pod of the template that waits for a node."""
    pod = k8s.Pod(
        metadata=k8s.ObjectMeta(
            name=name_of(template, number),
            namespace=template.namespace,
            uid=f"{template.namespace}-{template.name}-{number}",
            labels=template.labels,
        ),
        spec=k8s.PodSpec(
            containers=[
                k8s.Container(
                    name="c",
                    resources=k8s.ResourceRequirements(
                        requests={name: k8s.Quantity(string=v) for name, v in REQUESTS.items()}
                    ),
                )
            ],
            topology_spread_constraints=_constraints(template),
        ),
        status=k8s.PodStatus(phase="Pending"),
    )
    pod.metadata.owner_references.add(
        api_version="apps/v1" if template.revision else "batch/v1",
        kind="ReplicaSet" if template.revision else "Job",
        name=template.owner,
        uid=f"uid-{template.owner}",
        controller=True,
    )
    return pod


def pod_with_new_selector(template: Template, number: int) -> k8s.Pod:
    """A waiting pod whose selector was never used before; it matches the template's pods."""
    pod = pending_pod(template, number)
    del pod.spec.topology_spread_constraints[:]
    selector = _selector(template)
    selector.match_expressions.add(key="tier", operator="NotIn", values=[f"tier-{number}"])
    pod.spec.topology_spread_constraints.append(_on(ZONE, HARD, selector, skew=_ANY_SKEW))
    return pod


def _constraints(template: Template) -> list[k8s.TopologySpreadConstraint]:
    selector = _selector(template)
    match template.way % 5:
        case 0:
            return [_on(ZONE, SOFT, selector), _on(HOSTNAME, SOFT, selector)]
        case 1:
            return [_on(ZONE, HARD, selector, skew=_ANY_SKEW)]
        case 2:
            constraint = _on(ZONE, HARD, selector, skew=_ANY_SKEW)
            constraint.match_label_keys.append(HASH)
            return [constraint, _on(HOSTNAME, SOFT, selector)]
        case 3:
            constraint = _on(HOSTNAME, HARD, selector, skew=_ANY_SKEW)
            constraint.node_taints_policy = "Honor"
            return [constraint]
    return []  # the defaults, by way of the Service and the ReplicaSet


def _on(
    key: str, when: str, selector: k8s.LabelSelector, *, skew: int = 1
) -> k8s.TopologySpreadConstraint:
    return k8s.TopologySpreadConstraint(
        max_skew=skew, topology_key=key, when_unsatisfiable=when, label_selector=selector
    )


def _selector(template: Template) -> k8s.LabelSelector:
    key = "app" if template.revision else JOB
    return k8s.LabelSelector(match_labels={key: template.name})


def service(template: Template) -> k8s.Service:
    """A Service that selects the pods of all revisions."""
    return k8s.Service(
        metadata=k8s.ObjectMeta(name=template.name, namespace=template.namespace),
        spec=k8s.ServiceSpec(selector={"app": template.name}),
    )


def replica_set(template: Template, replicas: int) -> k8s.ReplicaSet:
    """The ReplicaSet that has the pods of this revision."""
    return k8s.ReplicaSet(
        metadata=k8s.ObjectMeta(name=template.owner, namespace=template.namespace),
        spec=k8s.ReplicaSetSpec(
            replicas=replicas, selector=k8s.LabelSelector(match_labels=template.labels)
        ),
    )


def node(name: str, zone: str, *, cordoned: bool = False, unreachable: bool = False) -> k8s.Node:
    """A node with its present labels and taints."""
    made = k8s.Node(
        metadata=k8s.ObjectMeta(name=name, uid=f"uid-{name}", labels={HOSTNAME: name, ZONE: zone}),
        status=k8s.NodeStatus(
            allocatable={resource: k8s.Quantity(string=v) for resource, v in OFFER.items()}
        ),
    )
    if cordoned:
        made.spec.unschedulable = True
        made.spec.taints.add(key=CORDONED, effect="NoSchedule")
    if unreachable:
        made.spec.taints.add(key=UNREACHABLE, effect="NoSchedule")
        made.spec.taints.add(key=UNREACHABLE, effect="NoExecute")
    return made
