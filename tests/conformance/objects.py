"""Clusters and questions of the cases as the product's messages and rules."""

from collections.abc import Iterator
from typing import Any

from tests.conformance.cases import Decision, Json
from topospread.codec.scheduler_config import profile_from_proto
from topospread.kube.versions import KubernetesVersion, parse_version
from topospread.spread.settings import NEWEST, RELEASES, Rules
from topospread_client import args_from_manifest, object_from_manifest
from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject
from topospread_proto.v1.common_pb2 import Kind, PodTopologySpreadArgs

KINDS = {
    "nodes": Kind.KIND_NODE,
    "pods": Kind.KIND_POD,
    "services": Kind.KIND_SERVICE,
    "replicationControllers": Kind.KIND_REPLICATION_CONTROLLER,
    "replicaSets": Kind.KIND_REPLICA_SET,
    "statefulSets": Kind.KIND_STATEFUL_SET,
}
"""The lists of a cluster, by the kind of their objects."""

UPSTREAM_GATES = {
    "nodeInclusionPolicy": "NodeInclusionPolicyInPodTopologySpread",
    "matchLabelKeys": "MatchLabelKeysInPodTopologySpread",
    "taintTolerationComparisonOperators": "TaintTolerationComparisonOperators",
    "minDomains": "MinDomainsInPodTopologySpread",
    "defaultPodTopologySpread": "DefaultPodTopologySpread",
    "schedulerMerge": "MatchLabelKeysInPodTopologySpreadSchedulerMerge",
}
"""The cases' short names of the gates, and the product's."""


def objects_of(cluster: Json) -> Iterator[ClusterObject]:
    """All objects of a cluster."""
    for kind in KINDS:
        for manifest in cluster.get(kind) or ():
            yield object_of(manifest)


def object_of(manifest: Json) -> ClusterObject:
    """One object."""
    made = object_from_manifest(manifest)
    assert made is not None, f"{manifest.get('kind')} is of no kind that a cluster has"
    return made


def gates_of(gates: dict[str, bool]) -> dict[str, bool]:
    """Feature gates by upstream's names."""
    return {UPSTREAM_GATES.get(name, name): on for name, on in gates.items()}


def args_of(args: Json) -> PodTopologySpreadArgs:
    """The plugin's arguments as a message."""
    return args_from_manifest(args)


def version_of(cluster: Json) -> KubernetesVersion:
    """The version of a case's cluster."""
    version = parse_version(cluster.get("kubernetesVersion", str(NEWEST)))
    assert version is not None, cluster["kubernetesVersion"]
    return version


def rules_of(case: Decision) -> Rules:
    """By which rules a case is judged.

    Raises:
        InvalidRequest: the plugin refuses the args.
    """
    version, gates = version_of(case.cluster), gates_of(case.gates)
    profile = profile_from_proto(args_of(case.args))
    rules = Rules(profile, RELEASES[version].gates.switched(gates), version)
    return rules if case.pod["metadata"].get("uid") else rules.for_manifests


def status_of(status: Any) -> Json:
    """A status of the core as the recorded answers write it."""
    return {"code": status.code.label, "reasons": list(status.reasons)}
