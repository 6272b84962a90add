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
    "node.cilium.io/agent-not-ready",
    "ebs.csi.aws.com/agent-not-ready",
    "efs.csi.aws.com/agent-not-ready",
    "fsx.csi.aws.com/agent-not-ready",
    "NodeWithImpairedVolumes",
    "medik8s.io/remediation",
    "node-problem-detector/",
    "UpdateInProgress",
)
"""Of nodes that start, fail or go away: whole keys, or prefixes where they end with a slash.

Kubernetes' node conditions and cloud providers; cluster-autoscaler, karpenter, Cluster API;
handlers of spot terminations; agents that are not ready yet.
"""

_RESERVED: Final = (
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/controlplane",
    "node-role.kubernetes.io/master",
    "node-role.kubernetes.io/etcd",
    "CriticalAddonsOnly",
    "virtual-kubelet.io/",
    "virtual-node.liqo.io/",
    "eks.amazonaws.com/compute-type",
)
"""Of nodes that are kept for the control plane, or that are none a kubelet runs on."""


def is_condition(taint: Taint) -> bool:
    """Whether a taint says that its node starts, fails, is cordoned or goes away."""
    return _named(taint.key, _CONDITIONS)


def means_stay_away(taint: Taint) -> bool:
    """Whether a pod that tolerated the taint would not start, be evicted, or be out of place."""
    return is_condition(taint) or _named(taint.key, _RESERVED)


def _named(key: str, names: tuple[str, ...]) -> bool:
    return any(key == each or (each.endswith("/") and key.startswith(each)) for each in names)
