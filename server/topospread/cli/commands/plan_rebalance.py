"""`topospread plan-rebalance`: the fewest evictions that bring constraints within maxSkew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from topospread.cli import documents, output
from topospread.cli.errors import DONE, NO_NODE_FITS
from topospread.cli.kinds import pod_path
from topospread.cli.options import ClientOptions, output_option, pass_options, server_options
from topospread.cli.request_options import (
    all_namespaces_option,
    check_all_namespaces,
    rules_options,
    settings_of,
)
from topospread.cli.state_source import from_option
from topospread_client import Consistency, EvictionFilters, EvictionLimits, selector_from_query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread_client import Optimality, PlanRebalanceResponse, RebalanceGroup
    from topospread_proto.kubernetes.v1.kubernetes_pb2 import LabelSelector

_COUNT = click.IntRange(min=0)


@click.command("plan-rebalance", short_help="Which evictions would even pods out?")
@click.option("-n", "--namespace", metavar="NAME", help="Only this namespace.  [all]")
@all_namespaces_option
@click.option(
    "--exclude-namespace", "excluded", multiple=True, metavar="NAME", help="Leave this one alone."
)
@click.option(
    "-l", "--selector", metavar="QUERY", help="Only the constraints of these pods; evict only them."
)
@click.option("--include-soft", is_flag=True, help="Also constraints that only prefer.")
@click.option("--max-evictions", type=_COUNT, metavar="N", help="In all.  [any number]")
@click.option(
    "--max-evictions-per-node", type=_COUNT, metavar="N", help="From one node.  [any number]"
)
@click.option(
    "--max-evictions-per-namespace",
    type=_COUNT,
    metavar="N",
    help="In one namespace.  [any number]",
)
@click.option(
    "--priority-threshold",
    type=click.IntRange(-(2**31), 2**31 - 1),
    metavar="P",
    help="Evict only pods of a lower priority.  [2000000000]",
)
@click.option(
    "--evict-bare-pods",
    is_flag=True,
    help="Evict also pods without a controller, which are not recreated.",
)
@click.option(
    "--protect-pods-with-pvc",
    is_flag=True,
    help="Never evict pods with a persistent volume claim.",
)
@click.option("--protect-selector", metavar="QUERY", help="Never evict pods with these labels.")
@click.option(
    "--search-timeout",
    type=click.FloatRange(0, 60, min_open=True),
    metavar="SECONDS",
    help="How long to search for fewer evictions.  [5]",
)
@rules_options
@from_option
@server_options
@output_option
@pass_options
def command(
    options: ClientOptions,
    namespace: str | None,
    all_namespaces: bool,
    excluded: Sequence[str],
    selector: str | None,
    include_soft: bool,
    max_evictions: int | None,
    max_evictions_per_node: int | None,
    max_evictions_per_namespace: int | None,
    priority_threshold: int | None,
    evict_bare_pods: bool,
    protect_pods_with_pvc: bool,
    protect_selector: str | None,
    search_timeout: float | None,
    args_file: str | None,
    profile: str | None,
    gates: Sequence[str],
) -> int:
    """Plan the fewest evictions that bring all constraints within maxSkew together.

    Nothing is evicted. Each eviction names a node that the replacement can go to then. The exit
    code is 1 when a constraint stays above its maxSkew.
    """
    check_all_namespaces(all_namespaces=all_namespaces, namespace=namespace)
    with options.client() as client:
        plan = client.plan_rebalance(
            _selector(selector, "--selector"),
            namespace=namespace,
            excluded_namespaces=excluded,
            include_soft=include_soft,
            filters=EvictionFilters(
                priority_threshold,
                evict_bare_pods,
                protect_pods_with_pvc,
                _selector(protect_selector, "--protect-selector"),
            ),
            eviction_limits=EvictionLimits(
                max_evictions, max_evictions_per_node, max_evictions_per_namespace
            ),
            search_timeout=search_timeout,
            settings=settings_of(args_file, profile, gates),
            consistency=Consistency(fully_consistent=True),
        )
    _show(plan, options)
    for text in plan.notes:
        output.warn(f"note: {text}")
    return NO_NODE_FITS if plan.remaining_constraint_count else DONE


def _selector(query: str | None, option: str) -> LabelSelector | None:
    return selector_from_query(query, option) if query else None


def _show(plan: PlanRebalanceResponse, options: ClientOptions) -> None:
    if options.output == "name":
        for each in plan.evictions:
            output.echo(pod_path(each.pod))
    elif options.output == "table":
        _print(plan)
    else:
        documents.show("RebalancePlan", options.output, cluster=options.cluster, answer=plan)


def _print(plan: PlanRebalanceResponse) -> None:
    if plan.groups:
        rows = [row for number, group in enumerate(plan.groups, 1) for row in _rows(number, group)]
        output.table(
            ["#", "TOPOLOGY KEY", "NAMESPACE", "SELECTOR", "#MAX SKEW", "#SKEW", "#AFTER"], rows
        )
        click.echo()
        for number, group in enumerate(plan.groups, 1):
            output.echo(f"{number}: {_summary(group)}")
        click.echo()
    if plan.evictions:
        steps = [
            (number, each.pod.full_name, each.node, each.target_node, each.fitting_node_count)
            for number, each in enumerate(plan.evictions, 1)
        ]
        output.table(["#STEP", "EVICT", "FROM", "REPLACEMENT CAN GO TO", "#FITTING"], steps)
        click.echo()
    output.fields(
        [
            ("evictions", f"{len(plan.evictions)}{_optimality_text(plan.optimality)}"),
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
    text = documents.words(group.outcome)
    if group.eviction_count is not None:
        plural = "" if group.eviction_count == 1 else "s"
        text += f", {group.eviction_count} eviction{plural}{_optimality_text(group.optimality)}"
    if group.at_once:
        text += ": evict all of them before the first replacement is placed"
    if group.reason:
        text += f": {group.reason}"
    if pending := group.pending_pod_count:
        pods = "1 pending pod counts" if pending == 1 else f"{pending} pending pods count"
        text += f"; {pods} for it once the scheduler finds a node: plan again then"
    return text


def _optimality_text(optimality: Optimality | None) -> str:
    return "" if optimality is None else f" ({documents.words(optimality)})"
