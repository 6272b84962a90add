"""How a plan of evictions is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from topospread.cli import printing, structures

if TYPE_CHECKING:
    from topospread_client import Optimality, PlanRebalanceResponse, RebalanceGroup


def show(plan: PlanRebalanceResponse, form: str, cluster: str) -> None:
    """Print a plan in the form asked for."""
    if form == "name":
        for each in plan.evictions:
            printing.say(each.pod.full_name)
    elif form == "table":
        _print(plan)
    else:
        structures.show("RebalancePlan", form, cluster=cluster, answer=plan)


def _print(plan: PlanRebalanceResponse) -> None:
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
            (number, each.pod.full_name, each.node, each.target_node, each.fitting_node_count)
            for number, each in enumerate(plan.evictions, 1)
        ]
        printing.table(["#STEP", "EVICT", "FROM", "REPLACEMENT CAN GO TO", "#FITTING"], steps)
        click.echo()
    printing.fields(
        [
            ("evictions", f"{len(plan.evictions)}{_sure(plan.optimality)}"),
            (
                "above maxSkew",
                f"{plan.violated_constraint_count} of {plan.constraint_count} constraints",
            ),
            ("after the plan", f"{plan.remaining_constraint_count}"),
            ("not evictable", ", ".join(f"{each.pod_count} {each.reason}" for each in plan.stuck)),
            ("not looked at", ", ".join(plan.not_modelled)),
            ("revision", plan.revision),
            ("trace", plan.trace_id),
        ]
    )


def _rows(number: int, group: RebalanceGroup) -> list[list[object]]:
    return [
        [
            number,
            each.constraint.topology_key,
            each.constraint.namespace,
            each.constraint.selector_text,
            each.constraint.max_skew,
            each.skew_before,
            each.skew_after,
        ]
        for each in group.constraints
    ]


def _summary(group: RebalanceGroup) -> str:
    text = structures.words(group.outcome)
    if group.eviction_count is not None:
        plural = "" if group.eviction_count == 1 else "s"
        text += f", {group.eviction_count} eviction{plural}{_sure(group.optimality)}"
    if group.at_once:
        text += ": evict all of them before the first replacement is placed"
    return f"{text}: {group.reason}" if group.reason else text


def _sure(optimality: Optimality | None) -> str:
    return "" if optimality is None else f" ({structures.words(optimality)})"
