"""`topospread reserve`: hold one node for a pod."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from topospread.cli import printing, structures
from topospread.cli.complaints import DONE, NO_NODE_FITS
from topospread.cli.inputs import input_options
from topospread.cli.options import (
    Options,
    output_option,
    pass_options,
    server_options,
    validation_option,
)
from topospread.cli.place import refuse_workloads
from topospread.cli.questions import questions_of
from topospread.cli.rules import rules_options, settings_of

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command("reserve", short_help="Hold one node for a pod.")
@click.argument("node")
@click.argument("stored", nargs=-1, metavar="[NAMESPACE/NAME]")
@input_options(required=False)
@click.option(
    "--ttl", type=click.FloatRange(0, min_open=True), help="Seconds to hold the place.  [60]"
)
@rules_options
@validation_option
@server_options
@output_option
@pass_options
def command(
    options: Options,
    node: str,
    stored: Sequence[str],
    paths: Sequence[str],
    recursive: bool,
    namespace: str | None,
    ttl: float | None,
    args_file: str | None,
    profile: str | None,
    gates: Sequence[str],
    no_validate: bool,
) -> int:
    """Hold NODE for a pod until it is bound, if the pod's hard constraints allow it.

    `place` chooses the node itself. The exit code is 1 when the constraints refuse it.
    """
    questions = questions_of(
        stored, paths, recursive=recursive, namespace=namespace, validate=not no_validate
    )
    refuse_workloads(questions)
    if len(questions) > 1:
        raise click.UsageError(f"one node is held for one pod; here are {len(questions)}")
    (question,) = questions
    with options.client() as client:
        held = client.reserve_node(
            question.pod,
            node,
            reservation_ttl=ttl,
            settings=settings_of(args_file, profile, gates),
            validation=question.validation,
        )
    fits = held.verdict.success
    if options.output == "name":
        printing.say(held.node or printing.NONE)
    elif options.output == "table":
        until = structures.moment(held.expire_time) if held.expire_time else ""
        printing.fields(
            [
                ("pod", question.label),
                ("node", held.node),
                ("held until", "bound" if held.already_bound else until),
                ("refused", ", ".join(held.verdict.reasons)),
                ("revision", held.revision),
                ("trace", held.trace_id),
            ]
        )
    else:
        item = {**structures.plain(question.subject), **structures.plain(held)}
        structures.show("PlacementList", options.output, cluster=options.cluster, items=[item])
    return DONE if fits else NO_NODE_FITS
