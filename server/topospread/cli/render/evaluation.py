"""Rendering of the answers of `evaluate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from topospread.cli import documents, output
from topospread.cli.kinds import node_path
from topospread.cli.render.explanation import ExplainedPod, fits_text
from topospread_client import ConstraintState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread_client import EvaluatePodResponse

_CONSTRAINT_COLUMNS: Final = (
    "TOPOLOGY KEY",
    "UNSATISFIABLE",
    "#MAX SKEW",
    "#MIN DOMAINS",
    "#ELIGIBLE DOMAINS",
    "#GLOBAL MINIMUM",
    "SELF MATCH",
)


@dataclass(frozen=True, slots=True)
class NamedNode:
    """Node that a pod fits, with its scores; without where no soft constraint scores nodes."""

    node: str
    raw: int | None = None
    normalized: int | None = None


@dataclass(frozen=True, slots=True)
class EvaluatedPod(ExplainedPod):
    """Pod and the answer about it, whose evaluation and constraints are shown."""

    @property
    def evaluation(self) -> EvaluatePodResponse:
        """Verdicts and nodes by spreading and the other filters that were asked."""
        return self.answer.evaluation

    @property
    def is_scored(self) -> bool:
        """Whether a soft constraint scores nodes, so that some are better than others."""
        return self.evaluation.pre_score_verdict.success

    @property
    def constraints(self) -> tuple[ConstraintState, ...]:
        """Constraints, the profile's for a pod that has none of its own."""
        return tuple(
            ConstraintState(
                constraint=each.constraint,
                self_match=each.self_match,
                eligible_domain_count=each.eligible_domain_count,
                global_minimum=each.minimum.value,
                domain_counts=(),
            )
            for each in self.answer.explanation.constraints
        )

    @property
    def nodes(self) -> tuple[NamedNode, ...]:
        """Nodes that it fits: the best first, if they are scored."""
        # Without soft constraints PreScore skips: 0 would look like a bad score.
        return tuple(
            NamedNode(each.node, each.raw, each.normalized)
            if self.is_scored
            else NamedNode(each.node)
            for each in self.evaluation.top_nodes
        )


def show(found: Sequence[EvaluatedPod], form: str, cluster: str) -> None:
    """Print evaluations in the form of `--output`."""
    if form == "table":
        for position, each in enumerate(found):
            if position:
                click.echo()
            _print(each)
    elif form == "name":
        for each in found:
            output.echo(node_path(each.evaluation.best))
    else:
        items = [
            {
                **documents.plain(each.request.subject),
                "fits": each.fits,
                "constraints": documents.plain(each.constraints),
                **documents.plain(each.evaluation),
                "topNodes": documents.plain(each.nodes),
                "notModelled": documents.plain(each.answer.explanation.not_modelled),
            }
            for each in found
        ]
        documents.show("EvaluationList", form, cluster=cluster, items=items)


def _print(pod: EvaluatedPod) -> None:
    evaluation, request = pod.evaluation, pod.request
    source = f"  ({request.subject.source})" if request.subject.source else ""
    click.secho(f"{request.label}{source}", bold=True)
    if pod.constraints:
        output.table(_CONSTRAINT_COLUMNS, map(_constraint_row, pod.constraints))
    else:
        output.echo("no constraint holds for it")
    click.echo()
    counts = [
        (counted.node_count, counted.verdict.code.label, ", ".join(counted.verdict.reasons))
        for counted in evaluation.verdict_counts
    ]
    output.table(["#NODES", "VERDICT", "REASON"], counts)
    click.echo()
    if pod.nodes:
        _print_nodes(pod)
        click.echo()
    output.fields(
        [
            ("fits", fits_text(pod.answer.explanation)),
            ("not looked at", ", ".join(pod.answer.explanation.not_modelled)),
            ("message", evaluation.message),
            ("revision", evaluation.revision),
            ("store unreachable for", output.seconds(evaluation.meta.store_unreachable_for)),
            ("trace", evaluation.trace_id),
        ]
    )


def _print_nodes(pod: EvaluatedPod) -> None:
    if pod.is_scored:
        rows = [(each.node, each.normalized, each.raw) for each in pod.nodes]
        output.table(["NODE", "#SCORE", "#RAW"], rows, title="Best nodes")
        return
    order = "domains with the fewest pods first" if pod.constraints else "by name"
    title = f"Nodes that fit, {order}; nothing scores them"
    output.table(["NODE"], [(each.node,) for each in pod.nodes], title=title)


def _constraint_row(state: ConstraintState) -> list[object]:
    constraint = state.constraint
    return [
        constraint.topology_key,
        constraint.when_unsatisfiable,
        constraint.max_skew,
        constraint.min_domains,
        state.eligible_domain_count,
        state.global_minimum,
        "yes" if state.self_match else "no",
    ]
