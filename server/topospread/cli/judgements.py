"""How the judgement of a pod is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from topospread.cli import printing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread_client.answers import Evaluation, PreFiltered, Status
    from topospread_proto.v1.kubernetes_pb2 import Pod

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
        label: kind and name.
        source: where the manifest stood; empty for a pod of the state.
        pod: as it was asked about; None for a pod of the state.
        evaluation: verdicts and best nodes.
        counted: what is known of the hard constraints.
    """

    label: str
    source: str
    pod: Pod | None
    evaluation: Evaluation
    counted: PreFiltered

    @property
    def fits(self) -> bool:
        """Whether any node passes."""
        return self.evaluation.feasible > 0


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
        items = [_structure(judgement) for judgement in found]
        printing.structure({"cluster": cluster, "items": items}, form)


def _print(judgement: Judgement) -> None:
    evaluation = judgement.evaluation
    source = f"  ({judgement.source})" if judgement.source else ""
    click.secho(f"{judgement.label}{source}", bold=True)
    constraints = list(_constraints(judgement))
    if constraints:
        rows = [[_shown(cell) for cell in each.values()] for each in constraints]
        printing.table(_CONSTRAINT_COLUMNS, rows)
    else:
        printing.say("no hard constraints, and none of its own: defaults may score it")
    click.echo()
    counts = [
        (counted.nodes, counted.status.code.label, ", ".join(counted.status.reasons))
        for counted in evaluation.verdicts
    ]
    printing.table(["#NODES", "VERDICT", "REASON"], counts)
    click.echo()
    if evaluation.top:
        # Without soft constraints PreScore skips: 0 would look like a bad score.
        scored = evaluation.pre_score.success
        best = [(n.node, *((n.normalized, n.raw) if scored else "--")) for n in evaluation.top]
        printing.table(["NODE", "#SCORE", "#RAW"], best)
        click.echo()
    printing.fields(
        [
            ("fits", f"{evaluation.feasible} of {evaluation.nodes} nodes"),
            ("message", evaluation.message),
            ("revision", evaluation.revision),
            ("stale for", _seconds(evaluation.stale_for)),
            ("trace", evaluation.trace_id),
        ]
    )


def _constraints(judgement: Judgement) -> Iterator[dict[str, object]]:
    """The hard constraints as the server counts them, then the pod's own soft ones."""
    for state in judgement.counted.constraints:
        yield {
            "topologyKey": state.topology_key,
            "whenUnsatisfiable": _HARD,
            "maxSkew": state.max_skew,
            "minDomains": state.min_domains,
            "eligibleDomains": state.eligible_domains,
            "globalMinimum": state.global_minimum,
            "selfMatch": state.self_match,
        }
    own = judgement.pod.spec.topology_spread_constraints if judgement.pod else ()
    for constraint in own:
        if constraint.when_unsatisfiable == _HARD:
            continue
        yield {
            "topologyKey": constraint.topology_key,
            "whenUnsatisfiable": constraint.when_unsatisfiable,
            "maxSkew": constraint.max_skew,
            "minDomains": None,
            "eligibleDomains": None,
            "globalMinimum": None,
            "selfMatch": None,
        }


def _structure(judgement: Judgement) -> dict[str, object]:
    evaluation = judgement.evaluation
    return {
        "pod": judgement.label,
        "source": judgement.source,
        "fits": judgement.fits,
        "node": evaluation.best,
        "nodes": evaluation.nodes,
        "feasible": evaluation.feasible,
        "constraints": list(_constraints(judgement)),
        "preFilter": _status(evaluation.pre_filter),
        "preScore": _status(evaluation.pre_score),
        "verdicts": [{**_status(v.status), "nodes": v.nodes} for v in evaluation.verdicts],
        "top": [{"node": n.node, "raw": n.raw, "normalized": n.normalized} for n in evaluation.top],
        "reason": evaluation.reason,
        "message": evaluation.message,
        "revision": evaluation.revision,
        "staleFor": evaluation.stale_for,
        "traceId": evaluation.trace_id,
    }


def _status(status: Status) -> dict[str, object]:
    return {"code": status.code.label, "reasons": list(status.reasons)}


def _shown(cell: object) -> object:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return "-" if cell is None else cell


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.1f} s"
