"""`topospread rank-deletions`: which pods of a workload should go first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from topospread.cli import documents, manifest_files, output
from topospread.cli.completeness import require_pods
from topospread.cli.errors import DONE, BadInput, raise_failed
from topospread.cli.kinds import STORED, ObjectName, pod_path
from topospread.cli.manifest_objects import ManifestErrors, is_job, storable_objects
from topospread.cli.options import MAX_NUMBER, ClientOptions, server_verb
from topospread.cli.render.deletion_order import print_order
from topospread.cli.request_options import input_options, validation_option
from topospread.cli.state_pods import StatePods
from topospread.cli.state_source import from_option
from topospread.cli.template_references import with_templates
from topospread.codec.pods import pod_from_proto
from topospread.kube.label_syntax import label_key_errors
from topospread.kube.validation import validate_constraints
from topospread.kube.violations import violation_text
from topospread.kube.workloads import REPLICA_SET, REVISIONS
from topospread_client import (
    ManifestError,
    pod_from_manifest,
    pod_templates,
    selector_from_manifest,
    selector_from_query,
)
from topospread_proto.v1.common_pb2 import CONSTRAINT_VALIDATION_STRICT, Consistency
from topospread_proto.v1.deletion_order_pb2 import (
    RANK_STRATEGY_EVEN,
    RANK_STRATEGY_PROPORTIONAL,
    RANK_STRATEGY_REPLICA_SET,
    RankConstraint,
    RankStrategy,
)
from topospread_proto.v1.planner_service_pb2 import RankDeletionsRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.cli.manifest_documents import Manifest
    from topospread.cli.manifest_objects import FieldValidation
    from topospread_proto.kubernetes.v1.kubernetes_pb2 import LabelSelector, Pod

STRATEGIES: Final = {
    documents.value_name(RankStrategy, number).lower().replace("_", "-"): number
    for number in (RANK_STRATEGY_EVEN, RANK_STRATEGY_PROPORTIONAL, RANK_STRATEGY_REPLICA_SET)
}
"""Values of `--strategy`; others are no choice, but what a controller does."""

_OWN_PODS: Final = frozenset(
    {"Deployment", "StatefulSet", "DaemonSet", "Job", "CloneSet", "Rollout", *REVISIONS}
)
"""Kinds that pods tell by themselves or by what controls them; of others the selector tells."""

_NO_MAKERS: Final = frozenset({"CronJob", "PodTemplate"})
"""Kinds with a template of which others make pods."""

_MAKERS: Final = 3
"""Controllers that an error names."""

_ADVICE: Final = "say which with --selector"
_ADVICE_OF_OTHERS: Final = (
    f"pods that other objects make for it are not known as its own: {_ADVICE}"
)


@click.command("rank-deletions", short_help="Which pods of a workload should go first?")
@click.argument("names", nargs=-1, metavar="[KIND/NAME]")
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
    "--delete-count",
    type=click.IntRange(1, MAX_NUMBER),
    metavar="K",
    help="How many pods to name.  [all]",
)
@click.option(
    "--strategy",
    type=click.Choice(list(STRATEGIES)),
    default="even",
    show_default=True,
    help="How pods are ranked.",
)
@from_option
@server_verb
def command(
    options: ClientOptions,
    names: Sequence[str],
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

    Say which pods: by KIND/NAME those of a workload of the state, as `explain` takes it; with -l,
    those of the state with these labels; with -f, the pods in the files, or those of the state that
    the workload in them has. They are of one workload. A StatefulSet and a Job take no order:
    theirs is shown. Nodes in the files take the place of the state's.
    """
    given = [_constraint(text) for text in constraints]
    if names and (paths or selector):
        raise click.UsageError("a workload's name goes without -l and -f")
    request = RankDeletionsRequest(consistency=Consistency(fully_consistent=True))
    if not names:
        manifests = manifest_files.read(paths, recursive=recursive)
        request = _request(manifests, validation, namespace, selector)
    if given:
        del request.constraints[:]
        request.constraints.extend(given)
    if delete_count is not None:
        request.delete_count = delete_count
    request.strategy = STRATEGIES[strategy]
    with options.client() as client:
        if names:
            _take_named(request, StatePods(client, request.consistency), names, namespace)
        ranked = client.call("RankDeletions", request)
        if not (ranked.pods or request.pods):
            if request.HasField("workload"):
                is_own = request.workload.kind in _OWN_PODS
                raise BadInput(*ranked.notes, advice="" if is_own else _ADVICE_OF_OTHERS)
            require_pods(client, request.namespace or "default", request.label_selector)
    documents.present(
        options.output,
        "DeletionOrder",
        lambda: print_order(ranked),
        (pod_path(each.pod) for each in ranked.pods),
        cluster=options.cluster,
        answer=ranked,
    )
    decider = ranked.decider
    # Other forms of output have it.
    decides = [decider.text] if options.output == "name" and decider.HasField("workload") else []
    for text in (*decides, *ranked.notes):
        output.warn(f"note: {text}")
    return DONE


def _take_named(
    request: RankDeletionsRequest, state: StatePods, names: Sequence[str], namespace: str | None
) -> None:
    """Ask for the pods of the one workload that is named."""
    found, failed = state.placeable(names, namespace)
    raise_failed(failed)
    labels = ", ".join(each.label for each in found)
    if len(found) > 1:
        raise BadInput(f"each workload is scaled in by itself: name one of {labels}")
    (workload,) = found
    if workload.next_replica is None:
        raise BadInput(f"{labels} is no workload that has pods: write KIND/NAME of one")
    name = ObjectName(
        workload.subject.kind, workload.subject.pod.namespace, workload.subject.pod.name
    )
    makers = {state.controllers(pod)[0] for pod in state.pods_of(name)}
    if makers and name not in makers and not any(each.kind in REVISIONS for each in makers):
        shown = sorted(each.path for each in makers)
        more = f" and {len(shown) - _MAKERS} more" if len(shown) > _MAKERS else ""
        raise BadInput(
            f"{labels} has its pods by {', '.join(shown[:_MAKERS])}{more}: name one, or {_ADVICE}"
        )
    request.namespace = workload.subject.pod.namespace
    request.workload.kind, request.workload.name = workload.subject.kind, workload.subject.pod.name


def _constraint(text: str) -> RankConstraint:
    key, equals, values = text.partition("=")
    named = [value.strip() for value in values.split(",")] if equals else []
    if not key or not all(named):
        raise BadInput(f"--constraint: {text!r} is none: write KEY, or KEY=VALUE,VALUE")
    return RankConstraint(topology_key=key, limited_values=named)


def _request(
    manifests: Sequence[Manifest],
    validation: FieldValidation,
    namespace: str | None,
    query: str | None,
) -> RankDeletionsRequest:
    """Request for the pods that a query or the workload among manifests selects, or for these."""
    storable, _ = storable_objects(manifests, validation, namespace)
    read = [each for _, each in storable]
    request = RankDeletionsRequest(
        namespace=namespace or "",
        pods=[each.pod for each in read if each.HasField("pod")],
        nodes=[each.node for each in read if each.HasField("node")],
        replica_sets=[each.replica_set for each in read if each.HasField("replica_set")],
        consistency=Consistency(fully_consistent=True),
    )
    if query:
        request.label_selector.CopyFrom(selector_from_query(query, "--selector"))
        return request
    owner = _owner(with_templates(manifests), pods_given=bool(request.pods))
    if owner is None:
        if not request.pods:
            raise BadInput(
                "say which pods: by KIND/NAME, with --selector, or with -f and a file of pods or of"
                " one workload"
            )
        return request
    selector, templates = _read_workload(owner, validation)
    name = _metadata_text(owner, "name")
    known = bool(name) and (owner.kind in _OWN_PODS or selector is None or len(templates) > 1)
    if owner.kind in _NO_MAKERS or (selector is None and not known):
        raise BadInput(f"{owner.title}: it selects no pods: {_ADVICE}")
    if selector is not None:
        request.label_selector.CopyFrom(selector)
    if known:
        request.workload.kind, request.workload.name = owner.kind, name
    completions = owner.content["spec"].get("completions") if is_job(owner) else None
    if isinstance(completions, int):
        request.completions = completions
    request.namespace = _metadata_text(owner, "namespace") or namespace or ""
    space = request.namespace or "default"
    own = [
        each
        for each in request.pods
        if (each.metadata.namespace or namespace or "default") == space
    ]
    if request.pods and not own:
        raise BadInput(f"{owner.title}: none of the pods in the input is in its namespace")
    del request.pods[:]
    request.pods.extend(own)
    # Its pods may not have these yet. A hard and a soft constraint may be equal here.
    own_constraints = dict.fromkeys(
        (each.topology_key, each.max_skew)
        for template in templates
        for each in template.spec.topology_spread_constraints
    )
    for key, skew in own_constraints:
        if skew > 0 and not label_key_errors(key):  # no node has another key
            request.constraints.add(topology_key=key, max_skew=skew)
    return request


def _read_workload(
    owner: Manifest, validation: FieldValidation
) -> tuple[LabelSelector | None, Sequence[Pod]]:
    """A workload's selector, and a pod of each of its templates."""
    errors = ManifestErrors(validation)
    if owner.kind not in STORED:  # the others have been checked
        errors.check_fields(owner)
    try:
        selector = selector_from_manifest(owner.content)
        templates = {
            each.text: pod_from_manifest(owner.content, template=each.text)
            for each in pod_templates(owner.content)
        }
    except ManifestError as error:
        errors.add(owner, error)
        errors.raise_all()
        raise
    is_strict = validation.of_constraints == CONSTRAINT_VALIDATION_STRICT
    for path, template in templates.items() if is_strict else ():
        for each in validate_constraints(pod_from_proto(template).constraints):
            text = violation_text(each).removeprefix(f"{each.field}: ")
            errors.add(owner, ManifestError(f"{path}.{each.field}", text))
    errors.raise_all()
    return selector, [*templates.values()]


def _owner(manifests: Sequence[Manifest], *, pods_given: bool) -> Manifest | None:
    """The only workload among manifests. A Deployment's ReplicaSets may stand beside its pods."""
    makers = [each for each in manifests if pod_templates(each.content)]
    owners = [each for each in makers if each.kind != REPLICA_SET]
    if not owners and not pods_given:
        owners = makers
    if len(owners) > 1:
        labels = ", ".join(each.label for each in owners)
        raise BadInput(f"the input has several workloads ({labels}): {_ADVICE}")
    return owners[0] if owners else None


def _metadata_text(manifest: Manifest, field: str) -> str:
    metadata = manifest.content.get("metadata")
    value = metadata.get(field) if isinstance(metadata, dict) else None
    return value if isinstance(value, str) else ""
