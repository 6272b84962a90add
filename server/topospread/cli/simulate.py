"""`topospread simulate`: what would happen if pods were placed on the live state plus changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from topospread.cli import completing, documents, objects, simulations
from topospread.cli.complaints import DONE, NO_NODE_FITS, BadInput
from topospread.cli.inputs import input_options
from topospread.cli.options import (
    Options,
    consistency_of,
    judging_options,
    output_option,
    pass_options,
    server_options,
)
from topospread.cli.place import FITS
from topospread.cli.questions import questions_of
from topospread.cli.rules import rules_options, settings_of
from topospread.cli.suppositions import changes_of, groups_of
from topospread_client import (
    ConstraintValidation,
    DrainedNode,
    DrainMode,
    PodReference,
    PodsToPlace,
    Scenario,
    SupposedChanges,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.cli.subjects import Question

_COUNT: Final = click.IntRange(0)


@click.command("simulate", short_help="What would happen: place pods on the state plus changes.")
@click.argument("stored", nargs=-1, metavar="[NAMESPACE/NAME]...")
@input_options(required=False)
@click.option(
    "--replicas", type=_COUNT, help="Of each pod in files.  [what a workload says; a pod: 1]"
)
@click.option(
    "--add-nodes",
    multiple=True,
    metavar="PATH[=N]",
    shell_complete=completing.files,
    help="N nodes like each Node of this file join.  [1; with --fewest-nodes: as many as it takes]",
)
@click.option("--zones", metavar="NAME,…", help="The nodes that join are in these zones, in turn.")
@click.option(
    "--drain",
    "drained",
    multiple=True,
    metavar="NODE[=tainted]",
    help="This node is gone; with =tainted it is still there, with the autoscaler's NoSchedule "
    "taint.",
)
@click.option(
    "--reschedule", is_flag=True, help="Place the pods of drained nodes anew, before all others."
)
@click.option(
    "--add-pods",
    multiple=True,
    metavar="PATH",
    shell_complete=completing.files,
    help="These pods run, each on its spec.nodeName.",
)
@click.option(
    "--delete-pod", "deleted", multiple=True, metavar="NAMESPACE/NAME", help="This pod is gone."
)
@click.option(
    "--constraint",
    "constraints",
    multiple=True,
    metavar="KEY:NAME=VALUE,…",
    help="Other values for the constraints with this key: maxSkew, minDomains, whenUnsatisfiable, "
    "nodeAffinityPolicy, nodeTaintsPolicy.",
)
@click.option(
    "--fewest-nodes", is_flag=True, help="Find the fewest of --add-nodes that make all fit."
)
@click.option(
    "--fit",
    type=click.Choice(list(FITS)),
    help="What to ask beside spreading.  [node-and-resources]",
)
@click.option("--seed", default="", metavar="TEXT", help="Orders equal nodes, as for `place`.")
@rules_options
@judging_options
@server_options
@output_option
@pass_options
def command(
    options: Options,
    stored: Sequence[str],
    paths: Sequence[str],
    recursive: bool,
    namespace: str | None,
    replicas: int | None,
    add_nodes: Sequence[str],
    zones: str | None,
    drained: Sequence[str],
    reschedule: bool,
    add_pods: Sequence[str],
    deleted: Sequence[str],
    constraints: Sequence[str],
    fewest_nodes: bool,
    fit: str | None,
    seed: str,
    args_file: str | None,
    profile: str | None,
    gates: Sequence[str],
    no_validate: bool,
    freshness: str,
) -> int:
    """Place pods one by one, as `place` would, on the live state plus changes. Nothing is written.

    Files may hold pods, and workloads for the pods they would make. The exit code is 1 when a pod
    stays pending.
    """
    questions: list[Question] = []
    if stored or paths or not reschedule:
        questions = questions_of(
            stored, paths, recursive=recursive, namespace=namespace, validate=not no_validate
        )
    running = objects.to_judge(documents.read(add_pods), namespace)[0] if add_pods else []
    validation = (each.validation for each in questions)
    scenario = Scenario(
        changes=SupposedChanges(
            add_node_groups=groups_of(add_nodes, zones, fewest=fewest_nodes),
            drain_nodes=[_drained(text) for text in drained],
            add_pods=[(each.pod, None) for each in running],
            delete_pods=deleted,
            constraint_changes=changes_of(constraints),
        ),
        fit=FITS[fit] if fit else None,
        seed=seed or None,
        settings=settings_of(args_file, profile, gates),
        validation=ConstraintValidation.STRICT
        if ConstraintValidation.STRICT in validation
        else ConstraintValidation.IGNORE,
    )
    with options.client() as client:
        found = client.simulate(
            [PodsToPlace(each.pod, _replicas(each, replicas)) for each in questions],
            scenario=scenario,
            find_fewest_nodes=fewest_nodes,
            reschedule=reschedule,
            consistency=consistency_of(freshness),
        )
    simulations.show(found, questions, options.output, options.cluster)
    return NO_NODE_FITS if found.pending_pod_count else DONE


def _drained(text: str) -> DrainedNode:
    node, equals, mode = text.partition("=")
    if not node or (equals and mode != "tainted"):
        raise BadInput(f"--drain {text}: write NODE, or NODE=tainted")
    return DrainedNode(node, DrainMode.TAINTED if equals else None)


def _replicas(question: Question, said: int | None) -> int | None:
    """How many; None for a pod of the state, and for one that is only itself."""
    if isinstance(question.pod, PodReference):
        return None
    return question.replicas if said is None else said
