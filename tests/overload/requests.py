"""Requests that cost a server much: nothing that it remembers of one helps it with another."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Final

from bench.campaigns.grown import pod
from tests.servers import ZONE, node
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import decision_service_pb2 as engine_pb

if TYPE_CHECKING:
    from topospread_proto.v1 import cluster_state_service_pb2 as state_pb

NODES: Final = 300
LARGEST_BATCH: Final = 660
"""Pods, each with two constraints, of the largest batch that is allowed for so many nodes."""

_numbers = count()


def cluster() -> list[state_pb.ClusterObject]:
    """Nodes in three zones."""
    return [node(f"node-{number}", f"zone-{number % 3}") for number in range(NODES)]


def evaluate() -> bytes:
    """An EvaluatePod of a pod like no other."""
    return engine_pb.EvaluatePodRequest(pod=_pod()).SerializeToString()


def batch(pods: int) -> bytes:
    """A BatchEvaluatePods of such pods."""
    pods_ = [_pod() for _ in range(pods)]
    return engine_pb.BatchEvaluatePodsRequest(pods=pods_).SerializeToString()


def _pod() -> common_pb2.PodSource:
    made = pod()
    del made.spec.topology_spread_constraints[:]
    for key in (ZONE, "kubernetes.io/hostname"):
        constraint = made.spec.topology_spread_constraints.add()
        constraint.max_skew = 5
        constraint.topology_key = key
        constraint.when_unsatisfiable = "DoNotSchedule"
        constraint.label_selector.match_labels["app"] = f"only-{next(_numbers)}"
    return common_pb2.PodSource(object=made)
