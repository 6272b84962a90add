"""`topospread rank-deletions`: which pods of a workload should go first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from topospread.cli import documents, printing, rankings
from topospread.cli.complaints import DONE, BadInput
from topospread.cli.inputs import input_options
from topospread.cli.options import Options, output_option, pass_options, server_options
from topospread.cli.workloads import Chosen, chosen
from topospread_client import Consistency, RankConstraint, RankStrategy

if TYPE_CHECKING:
    from collections.abc import Sequence

STRATEGIES = {each.lower().replace("_", "-"): each for each in RankStrategy}
"""What `--strategy` may say."""


@click.command("rank-deletions", short_help="Which pods of a workload should go first?")
@input_options(required=False)
@click.option("-l", "--selector", metavar="QUERY", help="The pods' labels, as kubectl takes them.")
@click.option(
    "--constraint",
    "constraints",
    multiple=True,
    metavar="KEY[=V1,V2]",
    help="Keep pods spread over this label (over these values of it).  [the pods' own constraints]",
)
@click.option(
    "--delete-count", type=click.IntRange(min=1), metavar="K", help="How many pods to name.  [all]"
)
@click.option(
    "--strategy",
    type=click.Choice(list(STRATEGIES)),
    default="even",
    show_default=True,
    help="How pods are ranked.",
)
@server_options
@output_option
@pass_options
def command(
    options: Options,
    paths: Sequence[str],
    recursive: bool,
    namespace: str | None,
    selector: str | None,
    constraints: Sequence[str],
    delete_count: int | None,
    strategy: str,
) -> int:
    """Name the pods of a workload in the order in which they should go. Nothing is deleted.

    Say which pods: with -l, those of the state; with -f, the pods in the files, or those of the
    state that the Deployment, CloneSet, StatefulSet or ReplicaSet in them selects. Nodes in the
    files take the place of the state's.
    """
    kept = [_kept(text) for text in constraints]
    wanted = chosen(documents.read(paths, recursive=recursive), namespace, selector)
    with options.client() as client:
        ranked = client.rank_deletions(
            wanted.selector,
            namespace=wanted.namespace,
            pods=wanted.pods,
            nodes=wanted.nodes,
            replica_sets=wanted.replica_sets,
            constraints=kept or _of_template(wanted),
            delete_count=delete_count,
            strategy=STRATEGIES[strategy],
            consistency=Consistency(fully_consistent=True),
        )
    rankings.show(ranked, options.output, options.cluster)
    for text in ranked.notes:
        printing.note(f"note: {text}")
    return DONE


def _kept(text: str) -> RankConstraint:
    key, equals, values = text.partition("=")
    named = [value.strip() for value in values.split(",")] if equals else []
    if not key or not all(named):
        raise BadInput(f"--constraint: {text!r} is none: write KEY, or KEY=VALUE,VALUE")
    return RankConstraint(key, named)


def _of_template(wanted: Chosen) -> list[RankConstraint]:
    """What the workload's template asks for; its pods may be older."""
    if wanted.template is None:
        return []
    said = [
        (each.topology_key, each.max_skew)
        for each in wanted.template.spec.topology_spread_constraints
    ]
    # A hard and a soft one may say the same here.
    return [RankConstraint(key, max_skew=skew) for key, skew in dict.fromkeys(said)]
