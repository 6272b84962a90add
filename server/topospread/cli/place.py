"""`topospread place`: choose the best node for pods and hold it for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from topospread.cli import printing, structures
from topospread.cli.complaints import DONE, NO_NODE_FITS, BadInput, Refusals
from topospread.cli.inputs import input_options
from topospread.cli.options import (
    Options,
    output_option,
    pass_options,
    server_options,
    validation_option,
)
from topospread.cli.questions import questions_of
from topospread.cli.rules import rules_options, settings_of
from topospread_client import Fit, InvalidRequest, NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.cli.subjects import Question
    from topospread_client import PlacePodResponse

FITS: Final = {
    "spread-only": Fit.SPREAD_ONLY,
    "node": Fit.NODE,
    "node-and-resources": Fit.NODE_AND_RESOURCES,
}
"""What `--fit` may say."""


@click.command("place")
@click.argument("stored", nargs=-1, metavar="[NAMESPACE/NAME]...")
@input_options(required=False)
@click.option(
    "--candidate", "candidates", multiple=True, metavar="NODE", help="Choose among these nodes."
)
@click.option(
    "--fit",
    type=click.Choice(list(FITS)),
    help="What to ask beside spreading.  [node-and-resources; with candidates: spread-only]",
)
@click.option(
    "--ttl", type=click.FloatRange(0, min_open=True), help="Seconds to hold the place.  [60]"
)
@click.option("--seed", default="", metavar="TEXT", help="Orders equal nodes; one for each caller.")
@rules_options
@validation_option
@server_options
@output_option
@pass_options
def command(
    options: Options,
    stored: Sequence[str],
    paths: Sequence[str],
    recursive: bool,
    namespace: str | None,
    candidates: Sequence[str],
    fit: str | None,
    ttl: float | None,
    seed: str,
    args_file: str | None,
    profile: str | None,
    gates: Sequence[str],
    no_validate: bool,
) -> int:
    """Choose the best node for pods, one after the other, and hold it until they are bound.

    What is held counts like a bound pod. Placing a pod again renews it. The exit code is 1 when a
    pod fits nowhere.
    """
    questions = questions_of(
        stored, paths, recursive=recursive, namespace=namespace, validate=not no_validate
    )
    refuse_workloads(questions)
    settings = settings_of(args_file, profile, gates)
    found: list[tuple[Question, PlacePodResponse]] = []
    refusals = Refusals()
    with options.client() as client, printing.progress("placing") as progress:
        for done, question in enumerate(questions, start=1):
            try:
                placed = client.place_pod(
                    question.pod,
                    candidates=candidates or None,
                    fit=FITS[fit] if fit else None,
                    reservation_ttl=ttl,
                    seed=seed or None,
                    settings=settings,
                    validation=question.validation,
                )
                found.append((question, placed))
            except (InvalidRequest, NotFound) as error:
                refusals.add(question, error)
            progress(done, len(questions))
    if found:
        _show(found, options)
    refusals.end()
    return DONE if all(placed.node for _, placed in found) else NO_NODE_FITS


def refuse_workloads(questions: Sequence[Question]) -> None:
    """A place is held for a pod by its name, and what a workload would make has none yet."""
    makers = [each for each in questions if each.replicas is not None]
    if makers:
        raise BadInput(
            *(
                f"{each.title}: a place is held for a pod, by its name: give pods; "
                "`simulate` places what a workload would make, and holds nothing"
                for each in makers
            )
        )


def _show(found: Sequence[tuple[Question, PlacePodResponse]], options: Options) -> None:
    if options.output == "name":
        for _, placed in found:
            printing.say(placed.node or printing.NONE)
    elif options.output == "table":
        rows = [
            [question.label, placed.node, _until(placed), ", ".join(placed.not_modelled)]
            for question, placed in found
        ]
        printing.table(["POD", "NODE", "HELD UNTIL", "NOT LOOKED AT"], rows)
        for question, placed in found:
            if not placed.node:
                printing.say(f"{question.label}: {placed.message or placed.verdict.reasons[0]}")
    else:
        items = [
            {**structures.plain(question.subject), **structures.plain(placed)}
            for question, placed in found
        ]
        structures.show("PlacementList", options.output, cluster=options.cluster, items=items)


def _until(placed: PlacePodResponse) -> str:
    if placed.already_bound:
        return "bound"
    return structures.moment(placed.expire_time) if placed.expire_time else ""
