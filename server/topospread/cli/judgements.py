"""How the judgement of a pod is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from topospread.cli import printing, structures
from topospread_proto.kubernetes.v1.kubernetes_pb2 import Pod

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread.cli.subjects import Question
    from topospread_client import EvaluatePodResponse, PreFilterResponse

_HARD: Final = "DoNotSchedule"
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
class Judgement:
    """One pod's answer.

    Attributes:
        evaluation: verdicts and best nodes.
        counted: what is known of the hard constraints.
    """

    question: Question
    evaluation: EvaluatePodResponse
    counted: PreFilterResponse

    @property
    def fits(self) -> bool:
        """Whether any node passes."""
        return self.evaluation.feasible_node_count > 0


def show(found: Sequence[Judgement], form: str, cluster: str) -> None:
    """Print judgements in the form asked for."""
    if form == "table":
        for position, judgement in enumerate(found):
            if position:
                click.echo()
            _print(judgement)
    elif form == "name":
        for judgement in found:
            printing.say(judgement.evaluation.best or printing.NONE)
    else:
        items = [
            {
                **structures.plain(judgement.question.subject),
                "fits": judgement.fits,
                "constraints": structures.plain(judgement.counted.constraints),
                **structures.plain(judgement.evaluation),
            }
            for judgement in found
        ]
        structures.show("EvaluationList", form, cluster=cluster, items=items)


def _print(judgement: Judgement) -> None:
    evaluation, question = judgement.evaluation, judgement.question
    source = f"  ({question.subject.source})" if question.subject.source else ""
    click.secho(f"{question.label}{source}", bold=True)
    rows = list(_constraints(judgement))
    if rows:
        printing.table(_CONSTRAINT_COLUMNS, rows)
    else:
        printing.say("no hard constraints, and none of its own: defaults may score it")
    click.echo()
    counts = [
        (counted.node_count, counted.verdict.code.label, ", ".join(counted.verdict.reasons))
        for counted in evaluation.verdict_counts
    ]
    printing.table(["#NODES", "VERDICT", "REASON"], counts)
    click.echo()
    if evaluation.top_nodes:
        # Without soft constraints PreScore skips: 0 would look like a bad score.
        scored = evaluation.pre_score_verdict.success
        best = [
            (each.node, *((each.normalized, each.raw) if scored else "--"))
            for each in evaluation.top_nodes
        ]
        printing.table(["NODE", "#SCORE", "#RAW"], best)
        click.echo()
    printing.fields(
        [
            ("fits", f"{evaluation.feasible_node_count} of {evaluation.node_count} nodes"),
            ("message", evaluation.message),
            ("revision", evaluation.revision),
            ("store unreachable for", printing.seconds(evaluation.meta.store_unreachable_for)),
            ("trace", evaluation.trace_id),
        ]
    )


def _constraints(judgement: Judgement) -> Iterator[list[object]]:
    """The hard constraints as the server counts them, then the pod's own soft ones."""
    for state in judgement.counted.constraints:
        constraint = state.constraint
        yield [
            constraint.topology_key,
            constraint.when_unsatisfiable,
            constraint.max_skew,
            constraint.min_domains,
            state.eligible_domain_count,
            state.global_minimum,
            "yes" if state.self_match else "no",
        ]
    pod = judgement.question.pod
    own = pod.spec.topology_spread_constraints if isinstance(pod, Pod) else ()
    for given in own:
        if given.when_unsatisfiable != _HARD:
            yield [given.topology_key, given.when_unsatisfiable, given.max_skew, *"----"]
