"""Taints that mean "do not come here": no pod is advised to tolerate them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from topospread.kube.objects import Taint

_CONDITIONS: Final = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "status-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
    "karpenter.sh/",
    "karpenter.k8s.aws/",
    "node.cluster.x-k8s.io/",
    "aws-node-termination-handler/",
    "cloud.google.com/impending-node-termination",
    "NodeWithImpairedVolumes",
    "node-problem-detector/",
    "UpdateInProgress",
)
"""Of nodes that start, fail or go away: whole keys, or prefixes where they end with a slash.

Kubernetes' node conditions and cloud providers; cluster-autoscaler, karpenter, Cluster API;
handlers of spot terminations.
"""

_STATES: Final = frozenset(
    {
        "not-ready",
        "unready",
        "uninitialized",
        "unhealthy",
        "unschedulable",
        "maintenance",
        "drain",
        "draining",
        "remediation",
    }
)
"""Words that end the names of such taints, whoever sets them: ``cni.istio.io/not-ready``."""

_RESERVED: Final = (
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/controlplane",
    "node-role.kubernetes.io/master",
    "node-role.kubernetes.io/etcd",
    "CriticalAddonsOnly",
    "virtual-kubelet.io/",
    "azure.com/aci",
    "eks.tke.cloud.tencent.com/eklet",
    "kwok.x-k8s.io/node",
    "virtual-node.liqo.io/",
    "eks.amazonaws.com/compute-type",
)
"""Of nodes that are kept for the control plane, or that are none a kubelet runs on."""


def is_condition(taint: Taint) -> bool:
    """Whether a taint says that its node starts, fails, is cordoned or goes away."""
    name = taint.key.rpartition("/")[2].lower()
    named = any(name == each or name.endswith(f"-{each}") for each in _STATES)
    return named or _named(taint.key, _CONDITIONS)


def means_stay_away(taint: Taint) -> bool:
    """Whether a pod that tolerated the taint would not start, be evicted, or be out of place."""
    return is_condition(taint) or _named(taint.key, _RESERVED)


def _named(key: str, names: tuple[str, ...]) -> bool:
    return any(key == each or (each.endswith("/") and key.startswith(each)) for each in names)
