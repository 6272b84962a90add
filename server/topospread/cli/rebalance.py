"""`topospread rebalance`: the fewest evictions that bring constraints within maxSkew together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from topospread.cli import printing, rebalances
from topospread.cli.complaints import DONE, NO_NODE_FITS
from topospread.cli.label_query import selector_of
from topospread.cli.options import Options, output_option, pass_options, server_options
from topospread.cli.rules import rules_options, settings_of
from topospread_client.rebalancing import Budgets, Filters
from topospread_client.requests import Consistency

if TYPE_CHECKING:
    from collections.abc import Sequence

_COUNT = click.IntRange(min=0)


@click.command("rebalance", short_help="Which evictions would even pods out?")
@click.option("-n", "--namespace", metavar="NAME", help="Only this namespace.  [all]")
@click.option(
    "--exclude-namespace", "excluded", multiple=True, metavar="NAME", help="Leave this one alone."
)
@click.option(
    "-l", "--selector", metavar="QUERY", help="Only the constraints of these pods; evict only them."
)
@click.option("--include-soft", is_flag=True, help="Also constraints that only prefer.")
@click.option("--max-evictions", type=_COUNT, metavar="N", help="In all.  [any number]")
@click.option("--max-per-node", type=_COUNT, metavar="N", help="From one node.  [any number]")
@click.option(
    "--max-per-namespace", type=_COUNT, metavar="N", help="In one namespace.  [any number]"
)
@click.option(
    "--priority-below",
    type=click.IntRange(-(2**31), 2**31 - 1),
    metavar="P",
    help="Evict only pods of a lower priority.  [2000000000]",
)
@click.option("--bare-pods", is_flag=True, help="Evict also pods that nobody makes again.")
@click.option(
    "--claims-stay", is_flag=True, help="Never evict pods with a persistent volume claim."
)
@click.option("--keep", metavar="QUERY", help="Never evict pods with these labels.")
@click.option(
    "--search-time",
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
    max_per_node: int | None,
    max_per_namespace: int | None,
    priority_below: int | None,
    bare_pods: bool,
    claims_stay: bool,
    keep: str | None,
    search_time: float | None,
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
            selector_of(selector) if selector else None,
            namespace=namespace or "",
            excluded_namespaces=excluded,
            include_soft=include_soft,
            filters=Filters(
                priority_below,
                bare_pods,
                claims_stay,
                selector_of(keep, "--keep") if keep else None,
            ),
            budgets=Budgets(max_evictions, max_per_node, max_per_namespace),
            search_time=search_time,
            settings=settings_of(args_file, profile, gates),
            consistency=Consistency(fully_consistent=True),
        )
    rebalances.show(plan, options.output, options.cluster)
    for text in plan.notes:
        printing.note(f"note: {text}")
    return NO_NODE_FITS if plan.left else DONE
