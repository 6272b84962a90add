"""Workloads of pods: their controllers, and their default selectors (KEP-1258).

Source of the second: kube-scheduler's ``helper.DefaultSelector``; upstream facts 23 and 24.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from topospread.kube.objects import OwnerReference
from topospread.kube.selectors import (
    NOTHING,
    Selector,
    SelectorError,
    compile_selector,
    selector_from_pairs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from topospread.kube.objects import Pod, Workload

    KnownControllers = Mapping[tuple[str, str], OwnerReference | None]

SERVICE: Final = "Service"
REPLICATION_CONTROLLER: Final = "ReplicationController"
REPLICA_SET: Final = "ReplicaSet"
STATEFUL_SET: Final = "StatefulSet"

DEPLOYMENT: Final = "Deployment"
JOB: Final = "Job"
CRON_JOB: Final = "CronJob"

TEMPLATE_HASH: Final = "pod-template-hash"
"""The label by which a Deployment tells the pods of its ReplicaSets apart."""

_HASHES: Final = {
    TEMPLATE_HASH: (DEPLOYMENT, "apps/v1"),
    "rollouts-pod-template-hash": ("Rollout", "argoproj.io/v1alpha1"),
}
"""Labels that end the names of ReplicaSets, with the kinds that write them."""

_CONFIG_LABEL: Final = "deploymentconfig"
"""The label that pods of a DeploymentConfig have, with its name."""

CONTROLLED: Final = {
    REPLICA_SET: "apps",
    REPLICATION_CONTROLLER: "",
    STATEFUL_SET: "apps",
    JOB: "batch",
}
"""Kinds of controllers whose own controllers are kept, with their API groups."""

REVISIONS: Final = frozenset({REPLICA_SET, REPLICATION_CONTROLLER})
"""Kinds whose objects are one revision of what controls them."""

_OUTER_BY_LABEL: Final = {
    "jobset.sigs.k8s.io/jobset-name": ({JOB}, "JobSet", "jobset.x-k8s.io/v1alpha2"),
    "leaderworkerset.sigs.k8s.io/name": (
        {STATEFUL_SET, "Pod"},
        "LeaderWorkerSet",
        "leaderworkerset.x-k8s.io/v1",
    ),
    "sparkoperator.k8s.io/app-name": ({"Pod"}, "SparkApplication", "sparkoperator.k8s.io/v1beta2"),
    "actions.github.com/scale-set-name": (
        {"EphemeralRunner"},
        "AutoscalingRunnerSet",
        "actions.github.com/v1alpha1",
    ),
    "runner-deployment-name": ({"Runner"}, "RunnerDeployment", "actions.summerwind.dev/v1alpha1"),
    "tekton.dev/pipelineRun": ({"TaskRun"}, "PipelineRun", "tekton.dev/v1"),
    "vm.kubevirt.io/name": ({"VirtualMachineInstance"}, "VirtualMachine", "kubevirt.io/v1"),
    "serving.knative.dev/revision": ({DEPLOYMENT}, "Revision", "serving.knative.dev/v1"),
    "serving.knative.dev/service": ({"Revision"}, "Service", "serving.knative.dev/v1"),
}
"""Labels of pods with the name of what controls their controllers: of these kinds, and its kind."""

_WHOLE: Final = frozenset(
    {CRON_JOB, "AdvancedCronJob", "JobSet", "ScaledJob", "LeaderWorkerSet", "SparkApplication"}
    | {"AutoscalingRunnerSet", "RunnerDeployment", "PipelineRun"}
)
"""Kinds that people know pods by, and not by what makes one of them, or a group, in between."""

_FIRST_MINUTE: Final = 26_297_280
"""2020 in minutes since 1970: before, CronJobs counted seconds. Dates, as 20261231, are less."""

_DEEPEST: Final = 4
"""Controllers of a pod that are followed."""

_OWNER_GROUPS: Final = {REPLICATION_CONTROLLER: "", REPLICA_SET: "apps", STATEFUL_SET: "apps"}


def controllers_of(
    owner: OwnerReference, pod_labels: Mapping[str, str], known: KnownControllers
) -> tuple[OwnerReference, ...]:
    """The controllers of a pod, the outer one last: a ReplicaSet, and its Deployment.

    Args:
        owner: the pod's own controller.
        pod_labels: the pod's.
        known: controllers of the namespace's objects of CONTROLLED by kind and name; None where
            one has none. Where it does not say, names do: a Deployment's or Rollout's ReplicaSet
            ends in the hash that its pods have as a label, a DeploymentConfig's
            ReplicationController begins with their label, a CronJob's Job ends in minutes, unless
            the one or the other is there. Of other kinds the pods' labels do.
    """
    chain = [owner]
    while len(chain) < _DEEPEST:
        last = chain[-1]
        group, slash, _ = last.api_version.rpartition("/")
        outer = None
        if last.kind in CONTROLLED and (not slash or group == CONTROLLED[last.kind]):
            key = last.kind, last.name
            outer = known.get(key)
            if outer is None and (last.kind == REPLICA_SET or key not in known):
                outer = _named(last, pod_labels)
        outer = outer or _labelled(last, pod_labels)
        if outer is None:
            break
        chain.append(outer)
    return tuple(chain)


def workload_of(controllers: Sequence[OwnerReference]) -> OwnerReference:
    """The controller that people know pods by: a ReplicaSet's Deployment, a Job's CronJob.

    And a ReplicationController's DeploymentConfig, a runner's AutoscalingRunnerSet. Not what
    controls most StatefulSets, or a Job that was made alone: those have no template of pods.
    """
    first, *outer = controllers
    whole = next((each for each in outer if each.kind in _WHOLE), None)
    if whole is None and outer and first.kind in REVISIONS:
        return outer[0]
    return whole or first


def _named(inner: OwnerReference, pod_labels: Mapping[str, str]) -> OwnerReference | None:
    outer, _, suffix = inner.name.rpartition("-")
    if outer and inner.kind == REPLICA_SET:
        for label, (kind, api_version) in _HASHES.items():
            if pod_labels.get(label) == suffix:
                return OwnerReference(api_version, kind, outer)
    if outer and inner.kind == REPLICATION_CONTROLLER and pod_labels.get(_CONFIG_LABEL) == outer:
        return OwnerReference("apps.openshift.io/v1", "DeploymentConfig", outer)
    if outer and inner.kind == JOB and _is_cron_minute(suffix):
        return OwnerReference("batch/v1", CRON_JOB, outer)
    return None


def _labelled(inner: OwnerReference, pod_labels: Mapping[str, str]) -> OwnerReference | None:
    for label, (kinds, kind, api_version) in _OUTER_BY_LABEL.items():
        if inner.kind in kinds and (name := pod_labels.get(label)):
            return OwnerReference(api_version, kind, name)
    return None


def _is_cron_minute(text: str) -> bool:
    if len(text) != 8 or not (text.isascii() and text.isdecimal()):
        return False
    return _FIRST_MINUTE <= int(text) <= time.time() // 60


def default_selector(
    pod: Pod,
    workloads: Iterable[Workload],
    lookup: Callable[[str, str], Workload | None],
) -> Selector:
    """The selector that default constraints get; empty when nothing selects the pod.

    All Services that match the pod are merged, and the controlling ReplicationController,
    ReplicaSet or StatefulSet is added, whether or not its selector matches the pod.

    Args:
        pod: the incoming pod.
        workloads: those of the pod's namespace; all but Services are passed over.
        lookup: finds a workload of the pod's namespace by kind and name; None when there is none.
    """
    labels: dict[str, str] = {}
    for workload in workloads:
        if workload.kind == SERVICE and _selects(workload, pod):
            labels.update(workload.match_labels)
    owner = None
    if pod.owner is not None and is_looked_up(pod.owner.kind, pod.owner.api_version):
        owner = lookup(pod.owner.kind, pod.owner.name)
    if owner is not None and owner.kind == REPLICATION_CONTROLLER:
        # A map like a Service's: its pairs take the place of equal keys.
        labels.update(owner.match_labels)
    selector = selector_from_pairs(labels.items())
    if owner is None or owner.kind == REPLICATION_CONTROLLER:
        return selector
    return selector.and_requirements(_of_owner(owner))


def is_looked_up(kind: str, api_version: str) -> bool:
    """Whether the selector of such a controller is part of the default selector."""
    group, _, version = api_version.rpartition("/")
    return version == "v1" and _OWNER_GROUPS.get(kind) == group


def _selects(service: Workload, pod: Pod) -> bool:
    return all(pod.labels.get(key) == value for key, value in service.match_labels)


def _of_owner(owner: Workload) -> Selector:
    try:
        return compile_selector(owner.selector)
    except SelectorError:
        return NOTHING
