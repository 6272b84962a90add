"""How a simulation is shown."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import click

from topospread.cli import printing
from topospread.cli.explanations import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread_client.simulations import (
        FewestNodes,
        JoinedNodes,
        PendingPods,
        Simulation,
        SpreadChange,
    )

ROWS: Final = 20
"""Nodes that a table names; JSON has all."""


def show(found: Simulation, labels: Sequence[str], form: str, cluster: str) -> None:
    """Print a simulation in the form asked for.

    Args:
        found: what the server answered.
        labels: how the pods are called, in the order of the request.
        form: table, name, json or yaml.
        cluster: that was asked about.
    """
    if form == "table":
        _print(found, labels)
    elif form == "name":
        for placement in found.placements:
            printing.say(placement.node)
        for _ in range(found.pending):
            printing.say(printing.NONE)
    else:
        printing.structure(_structure(found, labels, cluster), form)


def _print(found: Simulation, labels: Sequence[str]) -> None:
    titles = [f"{found.rescheduled} pods of drained nodes"] if found.rescheduled else []
    click.secho(", ".join([*titles, *labels]), bold=True)
    _print_nodes(found)
    for pending in found.pending_pods:
        click.echo()
        printing.say(f"pending: {_some(pending)}")
        printing.say(f"  {pending.message or ', '.join(pending.status.reasons)}")
        for suggestion in pending.explanation.suggestions if pending.explanation else ():
            printing.say(f"  the first would fit with {suggestion.text}")
    if found.spread:
        click.echo()
        printing.table(
            ("TOPOLOGY KEY", "UNSATISFIABLE", "#MAX SKEW", "#SKEW", "#DOMAINS", "PODS BY DOMAIN"),
            [_row(change) for change in found.spread],
        )
    click.echo()
    printing.fields(
        [
            ("placed", f"{found.placed} of {found.placed + found.pending}"),
            ("pending", found.pending or ""),
            ("joined", _by_group(found.joined)),
            ("evicted", found.evicted or ""),
            ("fewest nodes", _fewest_text(found.fewest)),
            ("it takes", "; ".join(found.advice)),
            ("not looked at", ", ".join(found.not_modelled)),
            ("revision", found.revision),
            ("trace", found.trace_id),
        ]
    )
    for warning in found.warnings:
        printing.note(f"warning: {warning}")


def _print_nodes(found: Simulation) -> None:
    counts = Counter((p.node, p.node_group) for p in found.placements)
    shown = counts.most_common(ROWS)
    if shown:
        printing.table(("NODE", "JOINS FROM", "#PODS"), [(*node, n) for node, n in shown])
    if len(counts) > ROWS:
        printing.say(f"… and {len(counts) - ROWS} more (-o json has all)")


def _some(pending: PendingPods) -> str:
    names = f"{pending.pods[0]} … {pending.pods[-1]}" if pending.count > 1 else pending.pods[0]
    return f"{pending.count} ({names})"


def _row(change: SpreadChange) -> list[object]:
    domains = [f"{d.value}: {_arrow(d.before, d.after)}" for d in change.domains[:6]]
    if change.domains_after > len(domains):
        domains.append("…")
    return [
        change.topology_key,
        change.when_unsatisfiable,
        change.max_skew,
        _arrow(change.skew_before, change.skew_after),
        _arrow(change.domains_before, change.domains_after),
        ", ".join(domains),
    ]


def _arrow(before: int | None, after: int | None) -> str:
    if before == after:
        return str(after)
    return " → ".join("-" if each is None else str(each) for each in (before, after))


def _fewest_text(fewest: FewestNodes | None) -> str:
    if fewest is None:
        return ""
    nodes = _by_group(fewest.nodes)
    if not fewest.all_fit:
        return f"no number up to {nodes} {'makes all fit' if fewest.proved else 'was found'}"
    if not fewest.count:
        return "none, all fit without"
    more = f"{fewest.count} more node{'' if fewest.count == 1 else 's'}"
    how = "proved" if fewest.proved else "best found"
    return f"{more} ({nodes}; {how})"


def _by_group(joined: Sequence[JoinedNodes]) -> str:
    return ", ".join(f"{group.count} of {group.node_group}" for group in joined if group.count)


def _structure(found: Simulation, labels: Sequence[str], cluster: str) -> dict[str, object]:
    fewest = found.fewest
    return {
        "cluster": cluster,
        "pods": list(labels),
        "placed": found.placed,
        "pending": found.pending,
        "placements": [
            {"pod": f"{p.namespace}/{p.pod}", "node": p.node, "nodeGroup": p.node_group}
            for p in found.placements
        ],
        "pendingPods": [
            {
                "pods": [f"{p.namespace}/{name}" for name in p.pods],
                "count": p.count,
                "code": p.status.code.label,
                "reasons": list(p.status.reasons),
                "message": p.message,
                "explanation": p.explanation and plain(p.explanation),
            }
            for p in found.pending_pods
        ],
        "spread": [_spread(change) for change in found.spread],
        "joined": list(map(_joined, found.joined)),
        "evicted": found.evicted,
        "rescheduled": found.rescheduled,
        "fewest": None
        if fewest is None
        else {
            "allFit": fewest.all_fit,
            "count": fewest.count,
            "nodes": list(map(_joined, fewest.nodes)),
            "optimal": "proved" if fewest.proved else "best_found",
            "simulations": fewest.simulations,
        },
        "advice": list(found.advice),
        "notModelled": list(found.not_modelled),
        "warnings": list(found.warnings),
        "revision": found.revision,
        "staleFor": found.stale_for,
        "traceId": found.trace_id,
    }


def _joined(joined: JoinedNodes) -> dict[str, object]:
    return {"nodeGroup": joined.node_group, "count": joined.count, "nodes": list(joined.nodes)}


def _spread(change: SpreadChange) -> dict[str, object]:
    return {
        "pods": change.pods,
        "pod": change.pod,
        "topologyKey": change.topology_key,
        "whenUnsatisfiable": change.when_unsatisfiable,
        "maxSkew": change.max_skew,
        "minDomains": change.min_domains,
        "skew": {"before": change.skew_before, "after": change.skew_after},
        "eligibleDomains": {"before": change.domains_before, "after": change.domains_after},
        "domains": [
            {"value": d.value, "before": d.before, "after": d.after} for d in change.domains
        ],
    }
