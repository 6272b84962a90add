"""`topospread explain`: why pods fit where they do, and what would let them in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import click

from topospread.cli import documents, output
from topospread.cli.errors import DONE, NO_NODE_FITS, Subject, raise_failed
from topospread.cli.kinds import OWNERS, POD, RESERVATION, ObjectName, parse_name, pod_path
from topospread.cli.manifest_objects import (
    NextReplica,
    PodRequest,
    ask_about,
    named_request,
    pod_requests,
)
from topospread.cli.options import ClientOptions, pages, server_verb
from topospread.cli.output import Column
from topospread.cli.render import explanation
from topospread.cli.request_options import (
    RequestOptions,
    all_namespaces_option,
    input_options,
    request_options,
)
from topospread.cli.state_source import from_option
from topospread.kube.workloads import outer_controller
from topospread_client import NotFound
from topospread_proto.kubernetes.v1.kubernetes_pb2 import Pod
from topospread_proto.v1 import common_pb2
from topospread_proto.v1.cluster_state_service_pb2 import ListObjectsRequest
from topospread_proto.v1.decision_service_pb2 import ExplainPodRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topospread.cli.options import ApiCaller
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
    named = [_candidates(text, namespace) for text in stored]
    wanted: list[PodRequest | Sequence[ObjectName]] = [*named]
    if paths or not (stored or pending):
        wanted += pod_requests(
            [], paths, recursive=recursive, namespace=namespace, validation=asked.validation
        )
    with options.client() as client:
        state = StatePods(client, asked.consistency)

        def explained(request: PodRequest) -> explanation.ExplainedPod:
            question = ExplainPodRequest(
                pod=request.source, validation=request.validation, domain_limit=domains
            )
            return explanation.ExplainedPod(
                request, client.call("ExplainPod", asked.fill(question))
            )

        if pending:
            groups, pods, unexplained = _find_pending(
                state, namespace, lambda name: explained(named_request(name)).answer
            )
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
        found, failed = ask_about(
            wanted,
            "explaining",
            lambda each: (
                explained(each)
                if isinstance(each, PodRequest)
                else _explain_named(each, state, explained)
            ),
            lambda each: each if isinstance(each, PodRequest) else named_request(each[-1]),
        )
    if found:
        explanation.show(found, options.output, options.cluster)
    raise_failed(failed)
    return DONE if all(each.fits for each in found) else NO_NODE_FITS


def _candidates(text: str, namespace: str | None) -> Sequence[ObjectName]:
    """What a name may mean, in the order of trial: ``jobs/x`` is a pod there before a Job."""
    name = parse_name(text, namespace, (POD, RESERVATION, *OWNERS), POD)
    word, slash, rest = text.partition("/")
    if name.kind in OWNERS and slash and "/" not in rest and word == f"{name.kind.lower()}s":
        return ObjectName(POD, word, rest), name
    return (name,)


def _explain_named(
    candidates: Sequence[ObjectName],
    state: StatePods,
    explained: Callable[[PodRequest], explanation.ExplainedPod],
) -> explanation.ExplainedPod:
    for name in candidates:
        if name.kind in OWNERS:
            return explained(state.next_replica(name))
        try:
            return explained(named_request(name))
        except NotFound as error:
            if error.reason != "POD_NOT_FOUND":
                raise
    return explained(state.workload_named(candidates[-1]))


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


@dataclass(slots=True)
class PendingWorkload:
    """Pending pods of one workload that are refused for one reason, or that fit.

    Its kind is Pod for pods without a controller, and its name that of the first of them. `pod` is
    one of the pods, which was explained; `suggestion`, the first of what would let it in;
    `scheduled_condition`, what the scheduler said of it, where that is something else;
    `kubernetes_version`, by whose rules it was judged.
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
            alike.setdefault((_workload(pod), _template(pod)), []).append(pod)
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
                said = found.explanation.message, *found.explanation.not_modelled
                group = groups.setdefault((workload, said), _group(workload, first, found))
                group.pod_count += len(pods)
            progress(done, len(explained))
    worst = sorted(groups.values(), key=lambda group: (group.fits, -group.pod_count))
    return worst, [pod_reference(pod) for _, pods in most for pod in pods], unexplained


def _workload(pod: Pod) -> ObjectName:
    """The outer controller of a pod; one without a name for pods without a controller."""
    owners = owners_of(pod)
    return owners[-1] if owners else ObjectName(POD, pod.metadata.namespace, "")


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
        if key not in _OF_ONE_POD:
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
        found.suggestions[0].text if found.suggestions else "",
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
                    ("the scheduler says", said),
                    ("not looked at", ", ".join(group.not_modelled)),
                    ("try", group.suggestion),
                ]
            )
    click.echo()
    output.fields([("pending", f"{pod_count} pods"), ("not explained", unexplained or None)])


_ENDED: Final = frozenset({"Succeeded", "Failed"})
_PAGE_SIZE: Final = 5000


@dataclass(frozen=True, slots=True)
class StatePods:
    """Reads pods of the state, of one namespace at a time or of all, each once."""

    client: ApiCaller
    consistency: common_pb2.Consistency | None
    _read: dict[str | None, Sequence[Pod]] = field(default_factory=dict)

    def of(self, namespace: str | None) -> Sequence[Pod]:
        """All pods of a namespace; None for those of all."""
        if namespace not in self._read:
            request = ListObjectsRequest(
                kind=common_pb2.KIND_POD,
                namespace=namespace or "",
                page_size=_PAGE_SIZE,
                consistency=self.consistency,
            )
            listed = pages(self.client, "ListObjects", request)
            self._read[namespace] = [each.pod for page in listed for each in page.objects]
        return self._read[namespace]

    def next_replica(self, workload: ObjectName) -> PodRequest:
        """Pod that a workload would make next, as its newest pod shows it; NotFound without one."""
        pods = self.of(workload.namespace)
        own = [pod for pod in pods if workload in owners_of(pod)]
        if own:
            return _next_replica(workload, own)
        raise NotFound(
            f"no pod of {workload.path} is in the state, and no more than its pods is known of it: "
            f"explain its manifest with -f",
            reason="POD_NOT_FOUND",
        )

    def workload_named(self, missing: ObjectName) -> PodRequest:
        """Next replica of the workload that has the name of a missing pod; NotFound without one."""
        pods = self.of(missing.namespace)
        owners = {owner for pod in pods for owner in owners_of(pod)}
        found = sorted(
            (owner for owner in owners if owner.name == missing.name),
            key=lambda owner: OWNERS.index(owner.kind) if owner.kind in OWNERS else len(OWNERS),
        )
        if found:
            return _next_replica(found[0], [pod for pod in pods if found[0] in owners_of(pod)])
        raise NotFound(
            f"pod {missing.namespace}/{missing.name} is not in the state, nor a pod of a "
            f"workload of that name",
            reason="POD_NOT_FOUND",
        )


def owners_of(pod: Pod) -> Sequence[ObjectName]:
    """Controllers of a pod, the outer one last: a ReplicaSet, and its Deployment.

    Those of ReplicaSets and Jobs are not stored: names tell them.
    """
    metadata = pod.metadata
    owner = next((each for each in metadata.owner_references if each.controller), None)
    if owner is None:
        return ()
    direct = ObjectName(owner.kind, metadata.namespace, owner.name)
    outer = outer_controller(owner.kind, owner.name, metadata.labels)
    if outer is None:
        return (direct,)
    kind, name = outer
    return (direct, ObjectName(kind, metadata.namespace, name))


def pod_reference(pod: Pod) -> common_pb2.PodReference:
    """Name of a pod of the state."""
    return common_pb2.PodReference(namespace=pod.metadata.namespace, name=pod.metadata.name)


def is_pending(pod: Pod) -> bool:
    """Whether a pod waits for a node: neither bound nor ended nor being deleted."""
    return not (pod.spec.node_name or _is_going(pod))


def _is_going(pod: Pod) -> bool:
    return pod.status.phase in _ENDED or pod.metadata.HasField("deletion_timestamp")


def _next_replica(workload: ObjectName, pods: Sequence[Pod]) -> PodRequest:
    # What goes may be of an older template; where all go, it is all that is known.
    staying = [pod for pod in pods if not _is_going(pod)]
    newest = max(
        staying or pods,
        key=lambda pod: (
            pod.metadata.creation_timestamp.seconds,
            is_pending(pod),
            pod.metadata.name,
        ),
    )
    pending = sum(map(is_pending, pods))
    replica = Pod()
    replica.CopyFrom(newest)
    replica.metadata.generate_name = f"{workload.name}-"
    for own in ("name", "uid", "resource_version", "creation_timestamp", "deletion_timestamp"):
        replica.metadata.ClearField(own)
    replica.spec.ClearField("node_name")
    replica.ClearField("status")
    for volume in replica.spec.volumes:
        # A StatefulSet makes another for the next.
        claim = volume.volume_source.persistent_volume_claim
        if claim.claim_name.endswith(f"-{newest.metadata.name}"):
            claim.claim_name = ""
    return PodRequest(
        common_pb2.PodSource(object=replica),
        Subject(workload.pod, workload.kind),
        f"{workload.kind} {workload.namespace}/{workload.name}",
        common_pb2.CONSTRAINT_VALIDATION_IGNORE,
        next_replica=NextReplica(
            pod_reference(newest),
            pending_pod_count=pending,
            running_pod_count=len(staying) - pending,
        ),
    )
