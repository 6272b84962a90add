"""How a simulation is shown."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import click

from topospread.cli import printing, structures
from topospread_client import Optimality

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.cli.subjects import Question
    from topospread_client import (
        FewestNodes,
        JoinedNodes,
        PendingPods,
        SimulateResponse,
        SpreadChange,
    )

ROWS: Final = 20
"""Nodes that a table names; JSON has all."""


def show(found: SimulateResponse, questions: Sequence[Question], form: str, cluster: str) -> None:
    """Print a simulation in the form asked for.

    Args:
        found: what the server answered.
        questions: the pods, in the order of the request.
        form: table, name, json or yaml.
        cluster: that was asked about.
    """
    if form == "table":
        _print(found, [each.label for each in questions])
    elif form == "name":
        for placement in found.placements:
            printing.say(placement.node)
        for _ in range(found.pending_pod_count):
            printing.say(printing.NONE)
    else:
        pods = [each.subject for each in questions]
        structures.show("Simulation", form, cluster=cluster, pods=pods, answer=found)


def _print(found: SimulateResponse, labels: Sequence[str]) -> None:
    again = found.rescheduled_pod_count
    titles = [f"{again} pods of drained nodes"] if again else []
    click.secho(", ".join([*titles, *labels]), bold=True)
    _print_nodes(found)
    for group in found.pending_pods:
        click.echo()
        printing.say(f"pending: {_some(group)}")
        printing.say(f"  {group.message or ', '.join(group.verdict.reasons)}")
        for suggestion in group.explanation.suggestions if group.explanation else ():
            printing.say(f"  the first would fit with {suggestion.text}")
    if found.spread_changes:
        click.echo()
        printing.table(
            ("TOPOLOGY KEY", "UNSATISFIABLE", "#MAX SKEW", "#SKEW", "#DOMAINS", "PODS BY DOMAIN"),
            [_row(change) for change in found.spread_changes],
        )
    click.echo()
    placed, pending = found.placed_pod_count, found.pending_pod_count
    printing.fields(
        [
            ("placed", f"{placed} of {placed + pending}"),
            ("pending", pending or ""),
            ("joined", _by_group(found.joined)),
            ("evicted", found.evicted_pod_count or ""),
            ("fewest nodes", _fewest_text(found.fewest_nodes, found.joined)),
            ("it takes", "; ".join(found.advice)),
            ("not looked at", ", ".join(found.not_modelled)),
            ("revision", found.revision),
            ("trace", found.trace_id),
        ]
    )
    for warning in found.warnings:
        printing.note(f"warning: {warning}")


def _print_nodes(found: SimulateResponse) -> None:
    counts = Counter((p.node, p.node_group) for p in found.placements)
    shown = counts.most_common(ROWS)
    if shown:
        printing.table(("NODE", "JOINS FROM", "#PODS"), [(*node, n) for node, n in shown])
    if len(counts) > ROWS:
        printing.say(f"… and {len(counts) - ROWS} more (-o json has all)")


def _some(pending: PendingPods) -> str:
    first, last = pending.pods[0].name, pending.pods[-1].name
    return f"{pending.pod_count} ({f'{first} … {last}' if pending.pod_count > 1 else first})"


def _row(change: SpreadChange) -> list[object]:
    domains = [
        f"{each.value}: {_arrow(each.pod_count_before, each.pod_count_after)}"
        for each in change.domains[:6]
    ]
    if change.domain_count_after > len(domains):
        domains.append("…")
    return [
        change.constraint.topology_key,
        change.constraint.when_unsatisfiable,
        change.constraint.max_skew,
        _arrow(change.skew_before, change.skew_after),
        _arrow(change.domain_count_before, change.domain_count_after),
        ", ".join(domains),
    ]


def _arrow(before: int | None, after: int | None) -> str:
    if before == after:
        return str(after)
    return " → ".join("-" if each is None else str(each) for each in (before, after))


def _fewest_text(fewest: FewestNodes | None, joined: Sequence[JoinedNodes]) -> str:
    if fewest is None:
        return ""
    nodes, proven = _by_group(joined), fewest.optimality is Optimality.PROVEN
    if not fewest.all_fit:
        return f"no number up to {nodes} {'makes all fit' if proven else 'was found'}"
    count = sum(group.node_count for group in joined)
    if not count:
        return "none, all fit without"
    more = f"{count} more node{'' if count == 1 else 's'}"
    return f"{more} ({nodes}; {'proven' if proven else 'best found'})"


def _by_group(joined: Sequence[JoinedNodes]) -> str:
    return ", ".join(
        f"{group.node_count} of {group.node_group}" for group in joined if group.node_count
    )
