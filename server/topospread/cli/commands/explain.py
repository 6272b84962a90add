"""`topospread explain`: why pods fit where they do, and what would let them in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from topospread.cli import documents, output
from topospread.cli.completeness import require_pods
from topospread.cli.errors import DONE, NO_NODE_FITS, raise_failed
from topospread.cli.kinds import POD, ObjectName, pod_path
from topospread.cli.manifest_objects import PodRequest, named_request, pod_requests
from topospread.cli.options import ClientOptions, server_verb
from topospread.cli.output import Column
from topospread.cli.render import explanation
from topospread.cli.request_options import (
    RequestOptions,
    all_namespaces_option,
    input_options,
    request_options,
)
from topospread.cli.state_pods import StatePods, is_pending, pod_reference
from topospread.cli.state_source import files_of, from_option
from topospread.wording import counted
from topospread_client import ORDINAL_LABELS, NotFound
from topospread_proto.kubernetes.v1.kubernetes_pb2 import Pod
from topospread_proto.v1.decision_service_pb2 import ExplainPodRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topospread_proto.v1.common_pb2 import PodReference
    from topospread_proto.v1.decision_service_pb2 import ExplainPodResponse
    from topospread_proto.v1.explanation_pb2 import PodScheduledCondition


@click.command("explain", short_help="Explain where pods may go, by constraint and domain.")
@click.argument("stored", nargs=-1, metavar="[NAME]...")
@input_options(required=False)
@request_options("fit", "settings", "validation", "consistency")
@click.option(
    "--domains",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    help="Domains to list of each constraint: those with the fewest pods and with the most.",
)
@click.option(
    "--pending", is_flag=True, help="All pods that wait for a node, by workload and reason."
)
@all_namespaces_option
@click.option("--no-headers", is_flag=True, help="With --pending: print the table's rows alone.")
@from_option
@server_verb
def command(
    options: ClientOptions,
    stored: Sequence[str],
    paths: Sequence[str],
    recursive: bool,
    namespace: str | None,
    domains: int,
    pending: bool,
    all_namespaces: bool,
    no_headers: bool,
    asked: RequestOptions,
) -> int:
    """Explain pods, from files or by name in the state, or the next replica of a workload.

    NAME is that of a pod, or of a workload: deploy/web, KIND/NAMESPACE/NAME, or the name alone
    where no pod has it. Its newest pod in the state shows what the next one is like.

    For each constraint and domain: the pods and nodes that count, the skew if the pod came, who
    holds the minimum and why, and the verdict. For a pod that fits nowhere: what would let it in,
    each tried out by judging it again. The exit code is 1 when a pod fits nowhere.

    With --pending, all pending pods of the state (with -n, of one namespace): how many of each
    workload, kube-scheduler's message, and what would let the first of them in.
    """
    if pending and (stored or paths):
        raise click.UsageError("--pending is of all pending pods: leave names and -f out")
    if all_namespaces and not pending:
        raise click.UsageError("-A goes with --pending; others are given by name or with -f")
    if no_headers and not pending:
        raise click.UsageError("--no-headers goes with --pending: an explanation is no table")
    if options.output == "name" and not pending:
        raise click.UsageError("-o name: an explanation is no name: use table, json or yaml")
    given: Sequence[PodRequest] = ()
    if paths or not (stored or pending):
        given = pod_requests(
            [], paths, recursive=recursive, namespace=namespace, validation=asked.validation
        )
    with options.client() as client:
        state = StatePods(client, asked.consistency, files_of(options))

        def explained(request: PodRequest) -> explanation.ExplainedPod:
            question = ExplainPodRequest(
                pod=request.source, validation=request.validation, domain_limit=domains
            )
            if request.subject.kind != POD:
                question.workload.kind = request.subject.kind
                question.workload.name = request.subject.pod.name
            return explanation.ExplainedPod(
                request, client.call("ExplainPod", asked.fill(question))
            )

        if pending:
            groups, pods, unexplained = _find_pending(
                state, namespace, lambda name: explained(named_request(name)).answer
            )
            if not pods:
                require_pods(client, namespace)
            documents.present(
                options.output,
                "PendingPodList",
                lambda: _print_pending(groups, len(pods), unexplained, headings=not no_headers),
                map(pod_path, pods),
                cluster=options.cluster,
                pod_count=len(pods),
                unexplained_pod_count=unexplained,
                items=groups,
            )
            return DONE if all(group.fits for group in groups) else NO_NODE_FITS
        found, failed = state.ask(stored, namespace, given, "explaining", explained)
    if found:
        explanation.show(found, options.output, options.cluster)
    raise_failed(failed)
    return DONE if all(each.fits for each in found) else NO_NODE_FITS


MAX_EXPLAINED: Final = 100
"""Kinds of pods that are explained; the pods of others are counted."""


@dataclass(slots=True)
class PendingWorkload:
    """Pending pods of one workload that are refused for one reason, or that fit.

    Its kind is Pod for pods without a controller, and its name that of the first of them. `pod` is
    one of the pods, which was explained; `cause`, what keeps it out; `whose`, other workloads' pods
    among those that a constraint counts which closes domains to it; `suggestion`, the first of what
    would let it in; `scheduled_condition`, what the scheduler said of it, where that is something
    else; `kubernetes_version`, by whose rules it was judged.
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
    cause: str
    whose: str
    suggestion: str
    not_modelled: Sequence[str]
    scheduled_condition: PodScheduledCondition | None
    kubernetes_version: str

    @property
    def path(self) -> str:
        """Name of the workload."""
        return ObjectName(self.kind, self.namespace, self.name).path


_PENDING_COLUMNS: Final = (
    Column("#PENDING", lambda group: group.pod_count),
    Column("FITS", lambda group: _fits(group)),
    Column("WORKLOAD", lambda group: group.path),
    Column("FOR EXAMPLE", lambda group: pod_path(group.pod)),
)


def _fits(group: PendingWorkload) -> str:
    return explanation.fitting_text(group.fitting_node_count, group.node_count, group.not_modelled)


def _find_pending(
    state: StatePods, namespace: str | None, explain: Callable[[ObjectName], ExplainPodResponse]
) -> tuple[list[PendingWorkload], list[PodReference], int]:
    """Explain the pending pods of the state: one of each workload and template, not each pod.

    Returns groups of them, the worst first; all pods; and how many of them were not explained.
    """
    alike: dict[tuple[ObjectName, bytes], list[Pod]] = {}
    for pod in state.of(namespace):
        if is_pending(pod):
            alike.setdefault((state.workload(pod), _template(pod)), []).append(pod)
    most = sorted(alike.items(), key=lambda item: -len(item[1]))
    groups: dict[object, PendingWorkload] = {}
    unexplained = sum(len(pods) for _, pods in most[MAX_EXPLAINED:])
    with output.progress("explaining") as progress:
        explained = most[:MAX_EXPLAINED]
        for done, ((workload, _), pods) in enumerate(explained, start=1):
            first = pod_reference(pods[0])
            try:
                found = explain(ObjectName(POD, first.namespace, first.name))
            except NotFound as error:
                if error.reason != "POD_NOT_FOUND":
                    raise
                unexplained += len(pods)  # it went since it was listed
            else:
                # One group of two that are alike, with the example of the larger one.
                group = _group(workload, first, found)
                alike_in = group.message, group.cause, group.suggestion, *group.not_modelled
                group = groups.setdefault((workload, alike_in), group)
                group.pod_count += len(pods)
            progress(done, len(explained))
    worst = sorted(groups.values(), key=lambda group: (group.fits, -group.pod_count))
    return worst, [pod_reference(pod) for _, pods in most for pod in pods], unexplained


def _template(pod: Pod) -> bytes:
    """What decides where a pod may go: equal for pods of one template.

    Pods for which claims are made have their names: each is judged by its own.
    """
    kept = Pod(spec=pod.spec)
    if any(each.volume_source.HasField("ephemeral") for each in pod.spec.volumes) or any(
        each.HasField("resource_claim_template_name") for each in pod.spec.resource_claims
    ):
        kept.metadata.name = pod.metadata.name
    for key, value in pod.metadata.labels.items():
        if key not in ORDINAL_LABELS:
            kept.metadata.labels[key] = value
    return kept.SerializeToString(deterministic=True)


def _group(workload: ObjectName, pod: PodReference, answer: ExplainPodResponse) -> PendingWorkload:
    found = answer.explanation
    return PendingWorkload(
        workload.kind,
        workload.namespace or "default",
        workload.name or pod.name,
        pod,
        0,
        found.fitting_node_count > 0,
        found.fitting_node_count,
        found.node_count,
        found.message,
        found.cause,
        explanation.whose_text(found),
        explanation.suggestion_text(found.suggestions[0]) if found.suggestions else "",
        found.not_modelled,
        found.scheduled_condition if found.HasField("scheduled_condition") else None,
        answer.meta.kubernetes_version,
    )


def _print_pending(
    groups: Sequence[PendingWorkload], pod_count: int, unexplained: int, *, headings: bool
) -> None:
    if not pod_count:
        output.warn("no pending pods found")
        return
    if groups:
        output.print_items(_PENDING_COLUMNS, groups, headings=headings)
    if not headings:
        return
    for group in groups:
        said = explanation.scheduler_text(group.scheduled_condition)
        if said or group.not_modelled or not group.fits:
            click.echo()
            click.secho(group.path, bold=True)
            output.fields(
                [
                    ("message", group.message),
                    ("cause", group.cause),
                    ("whose", group.whose),
                    ("the scheduler says", said),
                    ("not looked at", ", ".join(group.not_modelled)),
                    ("try", group.suggestion),
                ]
            )
    click.echo()
    output.fields(
        [
            ("pending", counted(pod_count, "pod")),
            ("not explained", unexplained or None),
        ]
    )
