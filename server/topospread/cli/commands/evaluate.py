"""`topospread evaluate`: on which nodes pods may run, and which are best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from topospread.cli import documents, output
from topospread.cli.errors import DONE, NO_NODE_FITS, raise_failed
from topospread.cli.kinds import node_path
from topospread.cli.manifest_objects import PodRequest, pod_requests
from topospread.cli.options import ClientOptions, server_verb
from topospread.cli.output import Column
from topospread.cli.render.explanation import (
    ExplainedPod,
    fits_text,
    next_replica_of,
    print_heading,
    state_fields,
)
from topospread.cli.request_options import RequestOptions, input_options, request_options
from topospread.cli.state_pods import StatePods
from topospread.cli.state_source import files_of, from_option
from topospread_proto.v1 import common_pb2
from topospread_proto.v1.decision_service_pb2 import ConstraintState, ExplainPodRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread_proto.v1.explanation_pb2 import ConstraintExplanation


@click.command("evaluate", short_help="Judge pods: where may they go?")
@click.argument("stored", nargs=-1, metavar="[NAME]...")
@input_options(required=False)
@click.option(
    "--top", type=click.IntRange(1, 1000), default=5, show_default=True, help="Nodes to name."
)
@request_options("fit", "settings", "validation", "consistency")
@from_option
@server_verb
def command(
    options: ClientOptions,
    stored: Sequence[str],
    paths: Sequence[str],
    recursive: bool,
    namespace: str | None,
    top: int,
    asked: RequestOptions,
) -> int:
    """Judge pods, from files or by name in the state: which nodes pass, and which are best.

    A node passes if spreading and the scheduler's other filters, as far as --fit asks for them, let
    it; what was not looked at is named. Only soft constraints make a node better than another.

    NAME is that of a pod, or of a workload for its next replica, as `explain` takes it. Files may
    hold pods, and workloads for the pod they would make. The exit code is 1 when a pod fits
    nowhere.
    """
    given: Sequence[PodRequest] = ()
    if paths or not stored:
        given = pod_requests(
            [], paths, recursive=recursive, namespace=namespace, validation=asked.validation
        )
    with options.client() as client:

        def evaluated(request: PodRequest) -> ExplainedPod:
            # One call, so that constraints and nodes are of one revision.
            question = ExplainPodRequest(
                pod=request.source,
                validation=request.validation,
                domain_limit=1,
                top_k=top,
                skip_suggestions=True,
            )
            return ExplainedPod(request, client.call("ExplainPod", asked.fill(question)))

        state = StatePods(client, asked.consistency, files_of(options))
        found, failed = state.ask(stored, namespace, given, "evaluating", evaluated)
    if found:
        _show(found, options.output, options.cluster)
    raise_failed(failed)
    return DONE if all(each.fits for each in found) else NO_NODE_FITS


_CONSTRAINTS: Final = (
    Column("TOPOLOGY KEY", lambda each: each.constraint.topology_key),
    Column("UNSATISFIABLE", lambda each: each.constraint.when_unsatisfiable),
    Column("#MAX SKEW", lambda each: each.constraint.max_skew),
    Column("#MIN DOMAINS", lambda each: each.constraint.min_domains),
    Column("#ELIGIBLE DOMAINS", lambda each: each.eligible_domain_count),
    Column("#GLOBAL MINIMUM", lambda each: each.minimum.value),
    Column("SELF MATCH", lambda each: output.yes_no(each.self_match)),
)
_VERDICTS: Final = (
    Column("#NODES", lambda each: each.node_count),
    Column(
        "VERDICT", lambda each: documents.constant_of(common_pb2.VerdictCode, each.verdict.code)
    ),
    Column("REASON", lambda each: ", ".join(each.verdict.reasons)),
)
_NODE: Final = Column("NODE", lambda each: each.node)
_SCORED_NODES: Final = (
    _NODE,
    Column("#SCORE", lambda each: each.normalized),
    Column("#RAW", lambda each: each.raw),
)


def _show(found: Sequence[ExplainedPod], form: str, cluster: str) -> None:
    documents.present(
        form,
        "EvaluationList",
        lambda: output.separated(found, _print),
        (node_path(_best(each)) for each in found),
        cluster=cluster,
        items=map(_item, found),
    )


def _best(pod: ExplainedPod) -> str:
    nodes = pod.answer.evaluation.top_nodes
    return nodes[0].node if nodes else ""


def _is_scored(pod: ExplainedPod) -> bool:
    """Whether a soft constraint scores nodes; where none does, 0 would look like a bad score."""
    code = pod.answer.evaluation.pre_score_verdict.code
    return bool(code == common_pb2.VERDICT_CODE_SUCCESS)


def _item(pod: ExplainedPod) -> dict[str, object]:
    explanation, nodes = pod.answer.explanation, pod.answer.evaluation.top_nodes
    return documents.joined(
        pod.request.subject,
        pod.answer.evaluation,
        pod.answer.meta,
        {
            "fits": pod.fits,
            "constraints": map(_constraint_state, explanation.constraints),
            "topNodes": nodes if _is_scored(pod) else [{"node": each.node} for each in nodes],
            "notModelled": explanation.not_modelled,
        },
        next_replica_of(pod),
    )


def _constraint_state(constraint: ConstraintExplanation) -> ConstraintState:
    return ConstraintState(
        constraint=constraint.constraint,
        self_match=constraint.self_match,
        eligible_domain_count=constraint.eligible_domain_count,
        global_minimum=constraint.minimum.value,
    )


def _print(pod: ExplainedPod) -> None:
    explanation, evaluation = pod.answer.explanation, pod.answer.evaluation
    print_heading(pod.request)
    if explanation.constraints:
        output.print_items(_CONSTRAINTS, explanation.constraints)
    else:
        output.echo("no constraint holds for it")
    click.echo()
    output.print_items(_VERDICTS, evaluation.verdict_counts)
    click.echo()
    if evaluation.top_nodes:
        if _is_scored(pod):
            output.print_items(_SCORED_NODES, evaluation.top_nodes, title="Best nodes")
        else:
            order = "domains with the fewest pods first" if explanation.constraints else "by name"
            title = f"Nodes that fit, {order}; nothing scores them"
            output.print_items([_NODE], evaluation.top_nodes, title=title)
        click.echo()
    output.fields(
        [
            ("fits", fits_text(explanation)),
            ("not looked at", ", ".join(explanation.not_modelled)),
            ("message", evaluation.message),
            *state_fields(pod.answer),
        ]
    )
