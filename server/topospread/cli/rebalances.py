"""How a plan of evictions is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from topospread.cli import printing

if TYPE_CHECKING:
    from topospread_client.rebalancing import RebalanceGroup, RebalancePlan


def show(plan: RebalancePlan, form: str, cluster: str) -> None:
    """Print a plan in the form asked for."""
    if form == "name":
        for each in plan.evictions:
            printing.say(f"{each.namespace}/{each.name}")
    elif form == "table":
        _print(plan)
    else:
        printing.structure({"cluster": cluster, **_structure(plan)}, form)


def _print(plan: RebalancePlan) -> None:
    if plan.groups:
        rows = [row for number, group in enumerate(plan.groups, 1) for row in _rows(number, group)]
        printing.table(
            ["#", "TOPOLOGY KEY", "NAMESPACE", "SELECTOR", "#MAX SKEW", "#SKEW", "#AFTER"], rows
        )
        click.echo()
        for number, group in enumerate(plan.groups, 1):
            printing.say(f"{number}: {_summary(group)}")
        click.echo()
    if plan.evictions:
        steps = [
            (number, f"{each.namespace}/{each.name}", each.node, each.target, each.fitting_nodes)
            for number, each in enumerate(plan.evictions, 1)
        ]
        printing.table(["#STEP", "EVICT", "FROM", "REPLACEMENT CAN GO TO", "#FITTING"], steps)
        click.echo()
    printing.fields(
        [
            ("evictions", f"{len(plan.evictions)} ({plan.optimal.label})"),
            ("above maxSkew", f"{plan.violated} of {plan.constraints} constraints"),
            ("after the plan", f"{plan.left}"),
            ("not evictable", ", ".join(f"{pods} {why}" for why, pods in plan.stuck.items())),
            ("not looked at", ", ".join(plan.not_modelled)),
            ("revision", plan.revision),
            ("trace", plan.trace_id),
        ]
    )


def _rows(number: int, group: RebalanceGroup) -> list[list[object]]:
    return [
        [
            number,
            each.topology_key,
            each.namespace,
            each.selector,
            each.max_skew,
            each.skew_before,
            each.skew_after,
        ]
        for each in group.constraints
    ]


def _summary(group: RebalanceGroup) -> str:
    text: str = group.outcome
    if group.evictions is not None:
        plural = "" if group.evictions == 1 else "s"
        text += f", {group.evictions} eviction{plural} ({group.optimal.label})"
    if group.at_once:
        text += ": evict all of them before the first replacement is placed"
    return f"{text}: {group.reason}" if group.reason else text


def _structure(plan: RebalancePlan) -> dict[str, object]:
    return {
        "revision": plan.revision,
        "optimal": plan.optimal.label,
        "constraints": plan.constraints,
        "violated": plan.violated,
        "left": plan.left,
        "evictions": [
            {
                "namespace": each.namespace,
                "name": each.name,
                "uid": each.uid,
                "node": each.node,
                "target": each.target,
                "fittingNodes": each.fitting_nodes,
                "priority": each.priority,
                "deletionCost": each.deletion_cost,
                "group": each.group,
            }
            for each in plan.evictions
        ],
        "groups": [
            {
                "outcome": group.outcome,
                "optimal": group.optimal.label,
                "evictions": group.evictions,
                "reason": group.reason,
                "atOnce": group.at_once,
                "constraints": [
                    {
                        "namespace": each.namespace,
                        "topologyKey": each.topology_key,
                        "selector": each.selector,
                        "maxSkew": each.max_skew,
                        "minDomains": each.min_domains,
                        "wanted": each.wanted,
                        "skewBefore": each.skew_before,
                        "skewAfter": each.skew_after,
                    }
                    for each in group.constraints
                ],
            }
            for group in plan.groups
        ],
        "stuck": dict(plan.stuck),
        "notModelled": list(plan.not_modelled),
        "notes": list(plan.notes),
        "traceId": plan.trace_id,
    }
