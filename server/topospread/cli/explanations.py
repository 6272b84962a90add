"""How explanations are shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

import click

from topospread.cli import printing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread_client.explanations import (
        ConstraintExplanation,
        DomainExplanation,
        Explained,
        PodExplanation,
    )

_COLUMNS: Final = ("DOMAIN", "#PODS", "#NODES", "#ELIGIBLE", "#USABLE", "#SKEW", "VERDICT", "WHY")
_STYLES: Final = {"open": "green", "closed": "red"}

_NAMED: Final = 3
"""Domains that are named as holding the minimum."""

_EXCLUDED: Final = {
    "missing_key": "lacking another key",
    "affinity": "outside the node affinity",
    "cordoned": "cordoned",
    "tainted": "tainted",
}


@dataclass(frozen=True, slots=True)
class Told:
    """One pod's answer.

    Attributes:
        label: kind and name.
        source: where the manifest stood; empty for a pod of the state.
    """

    label: str
    source: str
    answer: Explained


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
            "pod": told.label,
            "source": told.source,
            "fits": told.answer.explanation.fitting > 0,
            **plain(told.answer.explanation),
            "revision": told.answer.revision,
            "staleFor": told.answer.stale_for,
            "traceId": told.answer.trace_id,
        }
        for told in found
    ]
    printing.structure({"cluster": cluster, "items": items}, form)


def plain(value: Any) -> Any:
    """An answer as what JSON has, with names in camel case as Kubernetes writes them."""
    if is_dataclass(value):
        return {_camel(each.name): plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {_camel(key): plain(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    return getattr(value, "label", value) if isinstance(value, IntEnum) else value


def _camel(name: str) -> str:
    if " " in name:  # a reason, not a name
        return name
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))


def _print(told: Told) -> None:
    found = told.answer.explanation
    source = f"  ({told.source})" if told.source else ""
    click.secho(f"{told.label}{source}", bold=True)
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
            ("refused by other filters", _counted(found.refused)),
            ("not looked at", ", ".join(found.not_modelled)),
            ("message", found.message),
            ("revision", told.answer.revision),
            ("stale for", _seconds(told.answer.stale_for)),
            ("trace", told.answer.trace_id),
        ]
    )


def _print_constraint(constraint: ConstraintExplanation, *, defaulted: bool) -> None:
    action = "DoNotSchedule" if constraint.hard else "ScheduleAnyway"
    whose = "default " if defaulted else ""
    terms = [action, f"maxSkew {constraint.max_skew}"]
    if constraint.min_domains > 1:
        terms.append(f"minDomains {constraint.min_domains}")
    title = f"{whose}constraint {constraint.index}: {constraint.topology_key}"
    click.secho(f"{title} ({', '.join(terms)})", bold=True)
    printing.fields(
        [
            ("counts", _counts(constraint)),
            ("minimum", _minimum(constraint)),
            ("closed", _closed(constraint)),
            ("weight", f"{constraint.weight:.3f} a pod" if constraint.weight else ""),
        ]
    )
    columns, cells = list(_COLUMNS), _cells
    if not constraint.hard:
        columns[-2:] = ["SCORE", "WHY"]
    rows: list[list[object]] = [cells(constraint, domain) for domain in constraint.first]
    if constraint.unlisted:
        rows.append([f"… and {constraint.unlisted:,} more", *[" "] * (len(columns) - 1)])
    rows.extend(cells(constraint, domain) for domain in constraint.last)
    if rows:
        printing.table(columns, rows, styles=_STYLES)


def _counts(constraint: ConstraintExplanation) -> str:
    text = (
        f"pods {constraint.selector} on {constraint.eligible_nodes} eligible nodes, in "
        f"{constraint.eligible_domains} of {constraint.domains} domains"
    )
    left_out = [f"{nodes} {_EXCLUDED[why]}" for why, nodes in constraint.excluded.items()]
    if constraint.nodes_without_key:
        left_out.append(f"{constraint.nodes_without_key} without the key")
    return f"{text}; not {', '.join(left_out)}" if left_out else text


def _minimum(constraint: ConstraintExplanation) -> str:
    minimum = constraint.minimum
    if minimum.note:
        return f"{minimum.value}, {minimum.note}"
    named = [d.value or '""' for d in constraint.first if d.holds_minimum][:_NAMED]
    more = minimum.holders - len(named)
    who = ", ".join(named) + f" and {more:,} more" * bool(more)
    of = constraint.eligible_domains
    return f"{minimum.value}, held by {who}: the fewest of {of:,} eligible domain{'s' * (of != 1)}"


def _closed(constraint: ConstraintExplanation) -> str:
    if not constraint.hard or not (constraint.rejected_nodes or constraint.rejected_domains):
        return ""
    domains = constraint.rejected_domains
    return (
        f"{domains:,} domain{'s' * (domains != 1)}; it refuses {constraint.rejected_nodes:,} nodes "
        f"that pass the constraints before it, {constraint.rejected_alone:,} of them alone"
    )


def _cells(constraint: ConstraintExplanation, domain: DomainExplanation) -> list[object]:
    pods = f"{domain.pods} ({domain.reserved} reserved)" if domain.reserved else domain.pods
    if constraint.hard:
        verdict = "open" if domain.allowed else "closed"
    elif domain.scores is None:
        verdict = "-"
    else:
        low, high = domain.scores
        verdict = f"{low}" if low == high else f"{low} - {high}"
    return [
        domain.value or '""',
        pods,
        domain.nodes,
        domain.eligible_nodes,
        domain.usable_nodes,
        domain.skew,
        verdict,
        "; ".join(_whys(constraint, domain)) or "-",
    ]


def _whys(constraint: ConstraintExplanation, domain: DomainExplanation) -> Iterator[str]:
    if not domain.allowed:
        yield f"skew {domain.skew} > maxSkew {constraint.max_skew}"
    if domain.holds_minimum and constraint.minimum.reason == "Lowest":
        yield "holds the minimum"
    if domain.excluded:
        yield "not counted: " + ", ".join(f"{n} {_EXCLUDED[r]}" for r, n in domain.excluded.items())
    if domain.not_counted:
        yield f"{domain.not_counted} pods not counted"
    if domain.refused:
        yield _counted(domain.refused)


def _warnings(found: PodExplanation) -> Iterator[str]:
    for warned in found.warnings:
        where = "" if warned.constraint is None else f"constraint {warned.constraint}: "
        yield f"{where}{warned.text}"


def _suggestions(found: PodExplanation) -> Iterator[str]:
    for each in found.suggestions:
        yield f"{each.text}: {each.fitting} node{'s' * (each.fitting != 1)} would take it"


def _fits(found: PodExplanation) -> str:
    text = f"{found.fitting} of {found.nodes} nodes"
    if found.passing != found.fitting:
        text += f" (spreading alone leaves {found.passing})"
    return text


def _counted(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{nodes} {reason}" for reason, nodes in reasons.items())


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.1f} s"
