"""Labels that controllers add to the pods of workloads, which no pod template has.

They decide what matchLabelKeys counts. Where only a controller knows the value, the pods of a
manifest get one of their own: they are a new revision, beside those that run already.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from topospread_proto.kubernetes.v1.kubernetes_pb2 import Pod

NEW_REVISION: Final = "new_"
"""Begins the value of a label that only a controller knows. No controller makes such a value:
neither hashes nor names of objects have an underscore.
"""

_NAMES_OF_JOBS: Final = ("batch.kubernetes.io/job-name", "job-name")
"""Labels whose value is the name of the Job."""

_TEMPLATE_HASH: Final = "pod-template-hash"
_REVISION_HASH: Final = "controller-revision-hash"
_POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
_POD_INDEX: Final = "apps.kubernetes.io/pod-index"
_COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"

ORDINAL_LABELS: Final = frozenset({_POD_NAME, _POD_INDEX, _COMPLETION_INDEX})
"""Labels whose values end in the number of the pod."""

_OF_JOBS: Final = (
    *_NAMES_OF_JOBS,
    "batch.kubernetes.io/controller-uid",
    _COMPLETION_INDEX,
    "controller-uid",
)

CONTROLLER_LABELS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "Deployment": (_TEMPLATE_HASH,),
        "ReplicaSet": (_TEMPLATE_HASH,),
        "Rollout": ("rollouts-pod-template-hash",),
        "CloneSet": (_REVISION_HASH, _TEMPLATE_HASH),
        "StatefulSet": (_REVISION_HASH, _POD_NAME, _POD_INDEX),
        "DaemonSet": (_REVISION_HASH, "pod-template-generation"),
        "DeploymentConfig": ("deployment", "deploymentconfig"),
        "Job": _OF_JOBS,
        "CronJob": _OF_JOBS,
    }
)
"""Labels that controllers add to the pods of each kind of workload."""


_NAME_LABELS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "actions.github.com/AutoscalingRunnerSet": "actions.github.com/scale-set-name",
        "actions.summerwind.dev/RunnerDeployment": "runner-deployment-name",
        "argoproj.io/Workflow": "workflows.argoproj.io/workflow",
        "batch.volcano.sh/Job": "volcano.sh/job-name",
        "elasticsearch.k8s.elastic.co/Elasticsearch": "elasticsearch.k8s.elastic.co/cluster-name",
        "jobset.x-k8s.io/JobSet": "jobset.sigs.k8s.io/jobset-name",
        "kubevirt.io/VirtualMachine": "vm.kubevirt.io/name",
        "kubevirt.io/VirtualMachineInstance": "vm.kubevirt.io/name",
        "leaderworkerset.x-k8s.io/LeaderWorkerSet": "leaderworkerset.sigs.k8s.io/name",
        "ray.io/RayCluster": "ray.io/cluster",
        "serving.knative.dev/Service": "serving.knative.dev/service",
        "sparkoperator.k8s.io/SparkApplication": "sparkoperator.k8s.io/app-name",
    }
)
"""Labels by which well-known controllers give all pods the name of their object, by its kind."""


def add_name_label(pod: Pod, group: str, kind: str, name: str) -> None:
    """Add the label by which all pods of an object tell its name, where its kind has one."""
    label = _NAME_LABELS.get(f"{group}/{kind}", "")
    if label and name and label not in pod.metadata.labels:
        pod.metadata.labels[label] = name


def add_controller_labels(
    pod: Pod, kind: str, name: str, spec: Mapping[str, Any], *, known_only: bool = False
) -> None:
    """Add the labels that the first pod of a workload gets from its controller.

    Those that the template has stay. A ReplicaSet adds none: the Deployment that made it wrote them
    into its template. `spec` is what has the template: the workload's, or that of a CronJob's job.
    `known_only` are those whose value the manifest tells of all its pods.
    """
    added = () if kind == "ReplicaSet" else CONTROLLER_LABELS.get(kind, ())
    labels = pod.metadata.labels
    missing = [label for label in added if label not in labels]
    if not missing:
        return
    content = kind.encode() + b"\0" + pod.SerializeToString(deterministic=True)
    revision = NEW_REVISION + hashlib.sha256(content).hexdigest()[:8]
    known = _known_values(kind, name, spec)
    for label in missing:
        value = known.get(label, "" if known_only else revision)
        if value and not (known_only and label in ORDINAL_LABELS):
            labels[label] = value


def _known_values(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, str]:
    """Values that the manifest tells; empty where there is no such label."""
    if kind == "DeploymentConfig":
        return {"deploymentconfig": name}
    if kind == "StatefulSet":
        ordinals = spec.get("ordinals")
        start = ordinals.get("start") if isinstance(ordinals, Mapping) else None
        first = int(start) if isinstance(start, int) and 0 < start < 2**31 else 0
        return {_POD_NAME: f"{name}-{first}", _POD_INDEX: str(first)}
    if kind not in ("Job", "CronJob"):
        return {}
    known = {_COMPLETION_INDEX: "0" if spec.get("completionMode") == "Indexed" else ""}
    if spec.get("manualSelector"):
        known |= dict.fromkeys((label for label in _OF_JOBS if label != _COMPLETION_INDEX), "")
    elif kind == "Job" and name:
        known |= dict.fromkeys(_NAMES_OF_JOBS, name)
    return known
