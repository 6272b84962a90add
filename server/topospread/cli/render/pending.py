"""`topospread explain --pending`: the pods that wait for a node, by workload and reason."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import click

from topospread.cli import documents, output
from topospread.cli.errors import DONE, NO_NODE_FITS
from topospread.cli.kinds import POD, ObjectName, pod_path
from topospread.cli.workloads import StatePods, is_pending, owners_of
from topospread_client import ErrorReason, NotFound, PodReference
from topospread_proto.kubernetes.v1.kubernetes_pb2 import Pod

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topospread_client import Explanation

MAX_EXPLAINED: Final = 100
"""Kinds of pods that are explained; the pods of others are counted."""

_OF_ONE_POD: Final = frozenset(
    {
        "statefulset.kubernetes.io/pod-name",
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/job-completion-index",
    }
)
"""Labels that differ between pods of one template."""


@dataclass(frozen=True, slots=True)
class PendingWorkload:
    """Pending pods of one workload that are refused for one reason, or that fit.

    Attributes:
        kind: of the workload; Pod for a pod without a controller.
        namespace: of the workload.
        name: of the workload; of pods without a controller, the first of them.
        pod: one of the pods, which was explained.
        pod_count: how many there are.
        fits: whether a node would take that pod.
        fitting_node_count: nodes that would take it.
        node_count: nodes in the cluster.
        message: kube-scheduler's, where none would; else empty.
        suggestion: the first of what would let it in; empty where there is none.
    """

    kind: str
    namespace: str
    name: str
    pod: PodReference
    pod_count: int
    fits: bool
    fitting_node_count: int
    node_count: int
    message: str
    suggestion: str


@dataclass(frozen=True, slots=True)
class Pending:
    """What is pending: groups with the worst first, all pods, and how many were not explained."""

    groups: Sequence[PendingWorkload]
    pods: Sequence[PodReference]
    unexplained_pod_count: int

    @property
    def exit_code(self) -> int:
        """1 when a pod that was explained fits nowhere."""
        return DONE if all(group.fits for group in self.groups) else NO_NODE_FITS


def find(
    state: StatePods, namespace: str | None, explain: Callable[[ObjectName], Explanation]
) -> Pending:
    """Explain the pending pods of the state: one of each workload and template, not each pod.

    Args:
        state: where the pods are read.
        namespace: None for all.
        explain: asks a server about one pod.
    """
    alike: dict[tuple[ObjectName, bytes], list[Pod]] = {}
    for pod in state.of(namespace):
        if is_pending(pod):
            alike.setdefault((_workload(pod), _template(pod)), []).append(pod)
    most = sorted(alike.items(), key=lambda item: -len(item[1]))
    groups: dict[tuple[ObjectName, str], PendingWorkload] = {}
    unexplained = sum(len(pods) for _, pods in most[MAX_EXPLAINED:])
    with output.progress("explaining") as progress:
        explained = most[:MAX_EXPLAINED]
        for done, ((workload, _), pods) in enumerate(explained, start=1):
            first = _reference(pods[0])
            try:
                found = explain(ObjectName(POD, first.namespace, first.name))
            except NotFound as error:
                if error.reason != ErrorReason.POD_NOT_FOUND:
                    raise
                unexplained += len(pods)  # it went since it was listed
            else:
                group = _group(workload, first, len(pods), found)
                key = (workload, found.message)
                groups[key] = _joined(groups[key], group) if key in groups else group
            progress(done, len(explained))
    worst = sorted(groups.values(), key=lambda group: (group.fits, -group.pod_count))
    waiting = [_reference(pod) for _, pods in most for pod in pods]
    return Pending(worst, waiting, unexplained)


def _workload(pod: Pod) -> ObjectName:
    """The outer controller of a pod; one without a name for pods without a controller."""
    owners = owners_of(pod)
    return owners[-1] if owners else ObjectName(POD, pod.metadata.namespace, "")


def _template(pod: Pod) -> bytes:
    """What decides where a pod may go: equal for pods of one template."""
    kept = Pod(spec=pod.spec)
    for volume in kept.spec.volumes:
        # A StatefulSet's pods have claims of their own.
        volume.volume_source.persistent_volume_claim.claim_name = ""
    for key, value in pod.metadata.labels.items():
        if key not in _OF_ONE_POD:
            kept.metadata.labels[key] = value
    return kept.SerializeToString(deterministic=True)


def _reference(pod: Pod) -> PodReference:
    return PodReference(pod.metadata.name, pod.metadata.namespace)


def _group(
    workload: ObjectName, pod: PodReference, pod_count: int, found: Explanation
) -> PendingWorkload:
    return PendingWorkload(
        workload.kind,
        workload.namespace or "default",
        workload.name or pod.name,
        pod,
        pod_count,
        found.fitting_node_count > 0,
        found.fitting_node_count,
        found.node_count,
        found.message,
        found.suggestions[0].text if found.suggestions else "",
    )


def _joined(larger: PendingWorkload, other: PendingWorkload) -> PendingWorkload:
    """One group of two that are alike, with the example of the larger one."""
    return replace(larger, pod_count=larger.pod_count + other.pod_count)


def show(pending: Pending, form: str, cluster: str, *, headings: bool) -> None:
    """Print pending pods in the form of `--output`; a table without headings is rows alone."""
    if form == "name":
        for pod in pending.pods:
            output.echo(pod_path(pod))
    elif form == "table":
        _print(pending, headings=headings)
    else:
        documents.show(
            "PendingPodList",
            form,
            cluster=cluster,
            pod_count=len(pending.pods),
            unexplained_pod_count=pending.unexplained_pod_count,
            items=pending.groups,
        )


def _print(pending: Pending, *, headings: bool) -> None:
    if not pending.pods:
        output.warn("no pending pods found")
        return
    rows = [
        [
            group.pod_count,
            f"{group.fitting_node_count} of {group.node_count} nodes",
            ObjectName(group.kind, group.namespace, group.name).path,
            pod_path(group.pod),
        ]
        for group in pending.groups
    ]
    if rows:
        columns = ["#PENDING", "FITS", "WORKLOAD", "FOR EXAMPLE"]
        output.table(columns, rows, headings=headings)
    if not headings:
        return
    for group in pending.groups:
        if group.fits:
            continue
        click.echo()
        click.secho(ObjectName(group.kind, group.namespace, group.name).path, bold=True)
        output.fields([("message", group.message), ("try", group.suggestion)])
    click.echo()
    output.fields(
        [
            ("pending", f"{len(pending.pods)} pods"),
            ("not explained", pending.unexplained_pod_count or None),
        ]
    )
