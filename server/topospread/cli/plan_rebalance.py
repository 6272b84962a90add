"""`topospread plan-rebalance`: the fewest evictions that bring constraints within maxSkew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from topospread.cli import printing, rebalances
from topospread.cli.complaints import DONE, NO_NODE_FITS
from topospread.cli.options import Options, output_option, pass_options, server_options
from topospread.cli.rules import rules_options, settings_of
from topospread_client import Consistency, EvictionFilters, EvictionLimits, selector_from_query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread_proto.kubernetes.v1.kubernetes_pb2 import LabelSelector

_COUNT = click.IntRange(min=0)


@click.command("plan-rebalance", short_help="Which evictions would even pods out?")
@click.option("-n", "--namespace", metavar="NAME", help="Only this namespace.  [all]")
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
@click.option("--evict-bare-pods", is_flag=True, help="Evict also pods that nobody makes again.")
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
@server_options
@output_option
@pass_options
def command(
    options: Options,
    namespace: str | None,
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
    rebalances.show(plan, options.output, options.cluster)
    for text in plan.notes:
        printing.note(f"note: {text}")
    return NO_NODE_FITS if plan.remaining_constraint_count else DONE


def _selector(query: str | None, option: str) -> LabelSelector | None:
    return selector_from_query(query, option) if query else None
