"""`topospread rank-deletions`: which pods of a workload should go first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from topospread.cli import documents, manifest_files, output
from topospread.cli.errors import DONE, BadInput
from topospread.cli.field_validation import ManifestErrors
from topospread.cli.kinds import pod_path
from topospread.cli.manifest_objects import storable_objects
from topospread.cli.options import ClientOptions, output_option, pass_options, server_options
from topospread.cli.request_options import input_options, validation_option
from topospread.cli.state_source import from_option
from topospread_client import (
    Consistency,
    Kind,
    ManifestError,
    RankConstraint,
    RankStrategy,
    pod_from_manifest,
    selector_from_manifest,
    selector_from_query,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.cli.field_validation import FieldValidation
    from topospread.cli.manifest_files import Manifest
    from topospread_client import RankDeletionsResponse, RankedConstraint, RankedPod
    from topospread_proto.kubernetes.v1.kubernetes_pb2 import LabelSelector, Node, Pod, ReplicaSet

STRATEGIES: Final = {each.lower().replace("_", "-"): each for each in RankStrategy}
"""Values of `--strategy`."""

_SELECTING_KINDS: Final = ("Deployment", "CloneSet", "StatefulSet", "ReplicationController", "Job")
"""Kinds whose manifests select pods."""

_STORED_KINDS: Final = frozenset(kind.label for kind in Kind)
_REPLICA_SET: Final = "ReplicaSet"
_ADVICE: Final = "say which with --selector"


@dataclass(frozen=True, slots=True)
class _RankedPods:
    """Pods to rank, as the request names them.

    Attributes:
        selector: None only where pods are given.
        namespace: None for the default one.
        pods: ranked in place of the state's.
        nodes: used in place of the state's.
        replica_sets: used beside those of the state.
        template: the pod that the workload would make; None without a workload.
    """

    selector: LabelSelector | None
    namespace: str | None
    pods: Sequence[Pod]
    nodes: Sequence[Node]
    replica_sets: Sequence[ReplicaSet]
    template: Pod | None


@click.command("rank-deletions", short_help="Which pods of a workload should go first?")
@input_options(required=False)
@validation_option
@click.option("-l", "--selector", metavar="QUERY", help="The pods' labels, as kubectl takes them.")
@click.option(
    "--constraint",
    "constraints",
    multiple=True,
    metavar="KEY[=V1,V2]",
    help="Keep pods spread over this label (over these values of it).  [the pods' own constraints]",
)
@click.option(
    "--delete-count", type=click.IntRange(min=1), metavar="K", help="How many pods to name.  [all]"
)
@click.option(
    "--strategy",
    type=click.Choice(list(STRATEGIES)),
    default="even",
    show_default=True,
    help="How pods are ranked.",
)
@from_option
@server_options
@output_option
@pass_options
def command(
    options: ClientOptions,
    paths: Sequence[str],
    recursive: bool,
    namespace: str | None,
    validation: FieldValidation,
    selector: str | None,
    constraints: Sequence[str],
    delete_count: int | None,
    strategy: str,
) -> int:
    """Name the pods of a workload in the order in which they should go. Nothing is deleted.

    Say which pods: with -l, those of the state; with -f, the pods in the files, or those of the
    state that the Deployment, CloneSet, StatefulSet or ReplicaSet in them selects. Nodes in the
    files take the place of the state's.
    """
    given = [_constraint(text) for text in constraints]
    manifests = manifest_files.read(paths, recursive=recursive)
    wanted = _ranked_pods(manifests, validation, namespace, selector)
    with options.client() as client:
        ranked = client.rank_deletions(
            wanted.selector,
            namespace=wanted.namespace,
            pods=wanted.pods,
            nodes=wanted.nodes,
            replica_sets=wanted.replica_sets,
            constraints=given or _template_constraints(wanted),
            delete_count=delete_count,
            strategy=STRATEGIES[strategy],
            consistency=Consistency(fully_consistent=True),
        )
    _show(ranked, options)
    for text in ranked.notes:
        output.warn(f"note: {text}")
    return DONE


def _constraint(text: str) -> RankConstraint:
    key, equals, values = text.partition("=")
    named = [value.strip() for value in values.split(",")] if equals else []
    if not key or not all(named):
        raise BadInput(f"--constraint: {text!r} is none: write KEY, or KEY=VALUE,VALUE")
    return RankConstraint(key, named)


def _template_constraints(wanted: _RankedPods) -> list[RankConstraint]:
    """Constraints of the workload's template, which its pods may not have yet."""
    if wanted.template is None:
        return []
    pairs = [
        (each.topology_key, each.max_skew)
        for each in wanted.template.spec.topology_spread_constraints
    ]
    # A hard and a soft constraint may be equal here.
    return [RankConstraint(key, max_skew=skew) for key, skew in dict.fromkeys(pairs)]


def _ranked_pods(
    manifests: Sequence[Manifest],
    validation: FieldValidation,
    namespace: str | None,
    query: str | None,
) -> _RankedPods:
    """Pods that manifests and a label query select.

    Args:
        manifests: pods; or a workload, for the pods that it selects; and nodes and ReplicaSets.
        validation: of their fields.
        namespace: of the pods, and of objects that name none.
        query: labels; empty or None for the selector of the workload.

    Raises:
        BadInput: no pods are selected, or those of several workloads.
        InvalidRequest: a query that cannot be parsed.
    """
    read = [each for _, each in storable_objects(manifests, validation, namespace).objects]
    pods = [each.pod for each in read if each.HasField("pod")]
    nodes = [each.node for each in read if each.HasField("node")]
    replica_sets = [each.replica_set for each in read if each.HasField("replica_set")]
    if query:
        labels = selector_from_query(query, "--selector")
        return _RankedPods(labels, namespace, pods, nodes, replica_sets, None)
    owner = _owner(manifests, pods_given=bool(pods))
    if owner is None:
        if not pods:
            raise BadInput(
                "say which pods: with --selector, or with -f and a file of pods or of one workload"
            )
        return _RankedPods(None, namespace, pods, nodes, replica_sets, None)
    selector, template = _read_workload(owner, validation)
    if selector is None:
        raise BadInput(f"{owner.title}: it selects no pods: {_ADVICE}")
    space = template.metadata.namespace or namespace
    own = [each for each in pods if _namespace(each, namespace) == (space or "default")]
    if pods and not own:
        raise BadInput(f"{owner.title}: none of the pods in the input is in its namespace")
    return _RankedPods(selector, space, own, nodes, replica_sets, template)


def _read_workload(
    owner: Manifest, validation: FieldValidation
) -> tuple[LabelSelector | None, Pod]:
    """Selector and pod template of a workload.

    Raises:
        BadInput: it cannot be read, or its fields are refused.
    """
    errors = ManifestErrors(validation)
    if owner.kind not in _STORED_KINDS:  # the others have been checked
        errors.check_fields(owner)
    try:
        selector, template = selector_from_manifest(owner.content), pod_from_manifest(owner.content)
    except ManifestError as error:
        errors.add(owner, error)
        errors.raise_all()
        raise
    errors.raise_all()
    return selector, template


def _owner(manifests: Sequence[Manifest], *, pods_given: bool) -> Manifest | None:
    """The only workload among manifests. A Deployment's ReplicaSets may stand beside its pods."""
    owners = [each for each in manifests if each.kind in _SELECTING_KINDS]
    if not owners and not pods_given:
        owners = [each for each in manifests if each.kind == _REPLICA_SET]
    if len(owners) > 1:
        labels = ", ".join(each.label for each in owners)
        raise BadInput(f"the input has several workloads ({labels}): {_ADVICE}")
    return owners[0] if owners else None


def _namespace(pod: Pod, namespace: str | None) -> str:
    return pod.metadata.namespace or namespace or "default"


def _show(ranked: RankDeletionsResponse, options: ClientOptions) -> None:
    if options.output == "name":
        for each in ranked.pods:
            output.echo(pod_path(each.pod))
    elif options.output == "table":
        _print(ranked)
    else:
        documents.show("DeletionOrder", options.output, cluster=options.cluster, answer=ranked)


def _print(ranked: RankDeletionsResponse) -> None:
    if ranked.constraints:
        rows = [_constraint_row(each) for each in ranked.constraints]
        output.table(["TOPOLOGY KEY", "#MAX SKEW", "#SKEW", "PODS BY DOMAIN"], rows)
        click.echo()
    if ranked.pods:
        columns = ["#", "POD", "NODE", "#RANK"]
        for each in ranked.constraints:
            key = each.constraint.topology_key
            columns += [key.rpartition("/")[2].upper(), "#SKEW AFTER"]
        rows = [_pod_row(place, pod) for place, pod in enumerate(ranked.pods, start=1)]
        output.table(columns, rows)
        click.echo()
    if ranked.constraints:
        outcomes = [
            (documents.words(each.strategy), each.kept_count, each.within_count, each.last_skew)
            for each in ranked.outcomes
        ]
        output.table(["STRATEGY", "#KEPT", "#WITHIN", "#LAST SKEW"], outcomes)
        click.echo()
    longest, ending = ranked.keeps_longest, ranked.ending_pod_count
    output.fields(
        [
            ("strategy", documents.words(ranked.strategy)),
            (
                "keeps maxSkew longest",
                longest and f"{documents.words(longest)} ({_times(ranked)})",
            ),
            ("ranked", f"{ranked.ranked_pod_count} pods"),
            ("left out", f"{ending} pods that go anyway" if ending else None),
            ("revision", ranked.revision),
            ("trace", ranked.trace_id),
        ]
    )


def _times(ranked: RankDeletionsResponse) -> str:
    """Number of deletions during which the best strategy keeps maxSkew."""
    best = (each for each in ranked.outcomes if each.strategy == ranked.keeps_longest)
    kept, deletions = next(best).kept_count, len(ranked.pods)
    return "for all deletions" if kept == deletions else f"for {kept} of {deletions} deletions"


def _constraint_row(ranked: RankedConstraint) -> list[object]:
    fullest = [f"{each.value} {each.pod_count}" for each in ranked.domain_counts[:10]]
    more = ranked.domain_count - len(fullest)
    text = ", ".join(fullest) + (f" … and {more} more" if more else "")
    limits = f"={','.join(ranked.limited_values)}" if ranked.limited_values else ""
    constraint = ranked.constraint
    return [constraint.topology_key + limits, constraint.max_skew, ranked.skew, text]


def _pod_row(place: int, ranked: RankedPod) -> list[object]:
    row: list[object] = [place, ranked.pod.full_name, ranked.node, f"{ranked.rank:g}"]
    for domain, skew in zip(ranked.domains, ranked.skews, strict=True):
        row += [domain, skew]
    return row
