"""Which taints mean "do not come here"."""

from __future__ import annotations

import pytest

from topospread.kube.objects import Taint
from topospread.kube.taints import is_condition, means_stay_away

CONDITIONS = [
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/out-of-service",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/network-unavailable",
    "node.kubernetes.io/unschedulable",
    "node.cloudprovider.kubernetes.io/uninitialized",
    "node.cloudprovider.kubernetes.io/shutdown",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "karpenter.sh/unregistered",
    "node.cluster.x-k8s.io/uninitialized",
    "aws-node-termination-handler/spot-itn",
    "cloud.google.com/impending-node-termination",
    "node.cilium.io/agent-not-ready",
    "disk.csi.azure.com/agent-not-ready",
    "cni.istio.io/not-ready",
    "node.gardener.cloud/critical-components-not-ready",
    "node.deckhouse.io/uninitialized",
    "kubevirt.io/drain",
    "medik8s.io/remediation",
    "unschedulable",
    "maintenance",
    "example.com/node-maintenance",
]
RESERVED = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
    "virtual-kubelet.io/provider",
    "azure.com/aci",
    "kwok.x-k8s.io/node",
    "eks.amazonaws.com/compute-type",
    "CriticalAddonsOnly",
]
TOLERABLE = [
    "dedicated",
    "nvidia.com/gpu",
    "kubernetes.azure.com/scalesetpriority",
    "cloud.google.com/gke-spot",
    "node-role.kubernetes.io/infra",
    "karpenter.sh",
    "example.com/node.kubernetes.io",
    "maintenance.example.com/team",
    "schedulable",
]


@pytest.mark.parametrize("key", CONDITIONS)
def test_condition_of_a_node_means_stay_away(key: str) -> None:
    taint = Taint(key, effect="NoSchedule")
    assert is_condition(taint)
    assert means_stay_away(taint)


@pytest.mark.parametrize("key", RESERVED)
def test_reserved_node_means_stay_away_for_good(key: str) -> None:
    taint = Taint(key, value="x", effect="NoSchedule")
    assert means_stay_away(taint)
    assert not is_condition(taint)


@pytest.mark.parametrize("key", TOLERABLE)
def test_other_taints_are_for_those_who_tolerate_them(key: str) -> None:
    assert not means_stay_away(Taint(key, effect="NoSchedule"))
