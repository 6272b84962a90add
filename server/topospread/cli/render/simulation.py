"""Rendering of the answer of `simulate`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import click

from topospread.cli import documents, output
from topospread.cli.kinds import node_path
from topospread_client import Optimality

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.cli.manifest_objects import PodRequest
    from topospread_client import (
        FewestNodes,
        JoinedNodes,
        PendingPods,
        SimulateResponse,
        SpreadChange,
    )

ROWS: Final = 20
"""Number of nodes that a table names; JSON has all."""


def show(found: SimulateResponse, requests: Sequence[PodRequest], form: str, cluster: str) -> None:
    """Print a simulation in the form of `--output`.

    Args:
        found: answer of the server.
        requests: the pods, in the order of the request.
        form: table, name, json or yaml.
        cluster: name of the cluster.
    """
    if form == "table":
        _print(found, [each.label for each in requests])
    elif form == "name":
        for placement in found.placements:
            output.echo(node_path(placement.node))
        for _ in range(found.pending_pod_count):
            output.echo(output.NONE)
    else:
        pods = [each.subject for each in requests]
        documents.show("Simulation", form, cluster=cluster, pods=pods, answer=found)


def _print(found: SimulateResponse, labels: Sequence[str]) -> None:
    rescheduled = found.rescheduled_pod_count
    titles = [f"{rescheduled} pods of drained nodes"] if rescheduled else []
    click.secho(", ".join([*titles, *labels]), bold=True)
    _print_nodes(found)
    for group in found.pending_pods:
        click.echo()
        output.echo(f"pending: {_first_and_last(group)}")
        output.echo(f"  {group.message or ', '.join(group.verdict.reasons)}")
        for suggestion in group.explanation.suggestions if group.explanation else ():
            output.echo(f"  the first would fit with {suggestion.text}")
    if found.spread_changes:
        click.echo()
        output.table(
            ("TOPOLOGY KEY", "UNSATISFIABLE", "#MAX SKEW", "#SKEW", "#DOMAINS", "PODS BY DOMAIN"),
            [_row(change) for change in found.spread_changes],
        )
    click.echo()
    placed, pending = found.placed_pod_count, found.pending_pod_count
    output.fields(
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
        output.warn(f"warning: {warning}")


def _print_nodes(found: SimulateResponse) -> None:
    counts = Counter((p.node, p.node_group) for p in found.placements)
    shown = counts.most_common(ROWS)
    if shown:
        output.table(("NODE", "JOINS FROM", "#PODS"), [(*node, n) for node, n in shown])
    if len(counts) > ROWS:
        output.echo(f"… and {len(counts) - ROWS} more (-o json has all)")


def _first_and_last(pending: PendingPods) -> str:
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
