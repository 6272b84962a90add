"""How explanations are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from topospread.cli import printing, structures
from topospread_client import MinimumReason

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread.cli.subjects import Question
    from topospread_client import (
        ConstraintExplanation,
        DomainExplanation,
        ExcludedNodes,
        ExplainPodResponse,
        Explanation,
        NodeReason,
    )

_COLUMNS: Final = ("DOMAIN", "#PODS", "#NODES", "#ELIGIBLE", "#USABLE", "#SKEW", "VERDICT", "WHY")
_STYLES: Final = {"open": "green", "closed": "red"}

_NAMED: Final = 3
"""Domains that are named as holding the minimum."""

_EXCLUDED: Final = {
    "missing_key_count": "lacking another key",
    "affinity_count": "outside the node affinity",
    "cordoned_count": "cordoned",
    "tainted_count": "tainted",
}


@dataclass(frozen=True, slots=True)
class Told:
    """One pod's answer."""

    question: Question
    answer: ExplainPodResponse

    @property
    def fits(self) -> bool:
        """Whether a node fits, as far as was asked."""
        return self.answer.explanation.fitting_node_count > 0


def show(found: Sequence[Told], form: str, cluster: str) -> None:
    """Print explanations in the form asked for."""
    if form == "table":
        for position, told in enumerate(found):
            if position:
                click.echo()
            _print(told)
        return
    items = [
        {
            **structures.plain(told.question.subject),
            "fits": told.fits,
            **structures.plain(told.answer),
        }
        for told in found
    ]
    structures.show("ExplanationList", form, cluster=cluster, items=items)


def _print(told: Told) -> None:
    found = told.answer.explanation
    source = told.question.subject.source
    click.secho(f"{told.question.label}{f'  ({source})' if source else ''}", bold=True)
    if not found.constraints:
        printing.say("no constraint holds for it")
    for constraint in found.constraints:
        click.echo()
        _print_constraint(constraint, defaulted=found.defaulted)
    for title, lines in (
        ("Warnings", list(_warnings(found))),
        ("What would let it in (each was tried out)", list(_suggestions(found))),
    ):
        if lines:
            click.echo()
            click.secho(title, bold=True)
            for line in lines:
                printing.say(f"  - {line}")
    click.echo()
    printing.fields(
        [
            ("fits", _fits(found)),
            ("refused by other filters", _counted(found.node_reasons)),
            ("not looked at", ", ".join(found.not_modelled)),
            ("message", found.message),
            ("revision", told.answer.revision),
            ("store unreachable for", printing.seconds(told.answer.meta.store_unreachable_for)),
            ("trace", told.answer.trace_id),
        ]
    )


def _print_constraint(constraint: ConstraintExplanation, *, defaulted: bool) -> None:
    spread = constraint.constraint
    whose = "default " if defaulted else ""
    terms = [spread.when_unsatisfiable, f"maxSkew {spread.max_skew}"]
    if spread.min_domains > 1:
        terms.append(f"minDomains {spread.min_domains}")
    title = f"{whose}constraint {constraint.index}: {spread.topology_key}"
    click.secho(f"{title} ({', '.join(terms)})", bold=True)
    printing.fields(
        [
            ("counts", _counts(constraint)),
            ("minimum", _minimum(constraint)),
            ("closed", _closed(constraint)),
            ("weight", f"{constraint.weight:.3f} a pod" if constraint.weight else ""),
        ]
    )
    columns = list(_COLUMNS)
    if not _is_hard(constraint):
        columns[-2:] = ["SCORE", "WHY"]
    rows = [_cells(constraint, domain) for domain in constraint.domains]
    if constraint.unlisted_domain_count:
        gap: list[object] = [
            f"… and {constraint.unlisted_domain_count:,} more",
            *[" "] * (len(columns) - 1),
        ]
        rows.insert(constraint.leading_domain_count, gap)
    if rows:
        printing.table(columns, rows, styles=_STYLES)


def _is_hard(constraint: ConstraintExplanation) -> bool:
    return constraint.constraint.when_unsatisfiable == "DoNotSchedule"


def _counts(constraint: ConstraintExplanation) -> str:
    text = (
        f"pods {constraint.constraint.selector_text} on {constraint.eligible_node_count} eligible "
        f"nodes, in {constraint.eligible_domain_count} of {constraint.domain_count} domains"
    )
    left_out = _excluded(constraint.excluded)
    if constraint.keyless_node_count:
        left_out.append(f"{constraint.keyless_node_count} without the key")
    return f"{text}; not {', '.join(left_out)}" if left_out else text


def _minimum(constraint: ConstraintExplanation) -> str:
    minimum = constraint.minimum
    if minimum.note:
        return f"{minimum.value}, {minimum.note}"
    leading = constraint.domains[: constraint.leading_domain_count]
    named = [each.value or '""' for each in leading if each.holds_minimum][:_NAMED]
    more = minimum.lowest_domain_count - len(named)
    who = ", ".join(named) + f" and {more:,} more" * bool(more)
    of = constraint.eligible_domain_count
    return f"{minimum.value}, held by {who}: the fewest of {of:,} eligible domain{'s' * (of != 1)}"


def _closed(constraint: ConstraintExplanation) -> str:
    domains, nodes = constraint.rejected_domain_count, constraint.rejected_node_count
    if not _is_hard(constraint) or not (nodes or domains):
        return ""
    return (
        f"{domains:,} domain{'s' * (domains != 1)}; it refuses {nodes:,} nodes that pass the "
        f"constraints before it, {constraint.rejected_alone_node_count:,} of them alone"
    )


def _cells(constraint: ConstraintExplanation, domain: DomainExplanation) -> list[object]:
    pods: object = domain.pod_count
    if domain.reserved_pod_count:
        pods = f"{pods} ({domain.reserved_pod_count} reserved)"
    if _is_hard(constraint):
        verdict = "open" if domain.allowed else "closed"
    elif domain.scores is None:
        verdict = "-"
    else:
        low, high = domain.scores.lowest, domain.scores.highest
        verdict = f"{low}" if low == high else f"{low} - {high}"
    return [
        domain.value or '""',
        pods,
        domain.node_count,
        domain.eligible_node_count,
        domain.usable_node_count,
        domain.skew,
        verdict,
        "; ".join(_whys(constraint, domain)) or "-",
    ]


def _whys(constraint: ConstraintExplanation, domain: DomainExplanation) -> Iterator[str]:
    if not domain.allowed:
        yield f"skew {domain.skew} > maxSkew {constraint.constraint.max_skew}"
    if domain.holds_minimum and constraint.minimum.reason is MinimumReason.LOWEST:
        yield "holds the minimum"
    if excluded := _excluded(domain.excluded):
        yield f"not counted: {', '.join(excluded)}"
    if domain.uncounted_pod_count:
        yield f"{domain.uncounted_pod_count} pods not counted"
    if domain.node_reasons:
        yield _counted(domain.node_reasons)


def _excluded(excluded: ExcludedNodes) -> list[str]:
    counts = ((getattr(excluded, name), why) for name, why in _EXCLUDED.items())
    return [f"{nodes} {why}" for nodes, why in counts if nodes]


def _warnings(found: Explanation) -> Iterator[str]:
    for warned in found.warnings:
        index = warned.constraint_index
        where = "" if index is None else f"constraint {index}: "
        yield f"{where}{warned.text}"


def _suggestions(found: Explanation) -> Iterator[str]:
    for each in found.suggestions:
        nodes = each.fitting_node_count
        yield f"{each.text}: {nodes} node{'s' * (nodes != 1)} would take it"


def _fits(found: Explanation) -> str:
    text = f"{found.fitting_node_count} of {found.node_count} nodes"
    if found.feasible_node_count != found.fitting_node_count:
        text += f" (spreading alone leaves {found.feasible_node_count})"
    return text


def _counted(reasons: Sequence[NodeReason]) -> str:
    return ", ".join(f"{each.node_count} {each.reason}" for each in reasons)
