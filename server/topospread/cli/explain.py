"""`topospread explain`: why do these pods fit where they do, and what would let them in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from topospread.cli import explanations, printing
from topospread.cli.complaints import BAD_INPUT, DONE, NO_NODE_FITS, explained, prefixed
from topospread.cli.evaluate import questions_of
from topospread.cli.inputs import input_options
from topospread.cli.options import (
    Options,
    judging_options,
    output_option,
    pass_options,
    server_options,
)
from topospread.cli.place import FITS
from topospread.cli.rules import rules_options, settings_of
from topospread_client.errors import InvalidRequest, NotFound
from topospread_client.requests import Consistency

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command("explain", short_help="Explain where pods may go, by constraint and domain.")
@click.argument("stored", nargs=-1, metavar="[NAMESPACE/NAME]...")
@input_options(required=False)
@click.option(
    "--fit",
    type=click.Choice(list(FITS)),
    default="node-and-resources",
    show_default=True,
    help="What to ask beside spreading.",
)
@click.option(
    "--domains",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    help="Domains to list of each constraint: those with the fewest pods and with the most.",
)
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
    fit: str,
    domains: int,
    args_file: str | None,
    profile: str | None,
    gates: Sequence[str],
    no_validate: bool,
    fast: bool,
) -> int:
    """Explain pods, from files or by name in the state.

    For each constraint and domain: the pods and nodes that count, the skew if the pod came, who
    holds the minimum and why, and the verdict. For a pod that fits nowhere: what would let it in,
    each tried out by judging it again. The exit code is 1 when a pod fits nowhere.
    """
    if options.output == "name":
        raise click.UsageError("-o name: an explanation is no name: use table, json or yaml")
    questions = questions_of(
        stored, paths, recursive=recursive, namespace=namespace, validate=not no_validate
    )
    settings = settings_of(args_file, profile, gates)
    consistency = None if fast else Consistency(fully_consistent=True)
    found: list[explanations.Told] = []
    refused: list[str] = []
    with options.client() as client, printing.progress("explaining") as progress:
        for done, question in enumerate(questions, start=1):
            try:
                answer = client.explain(
                    question.pod,
                    fit=FITS[fit],
                    domain_limit=domains,
                    settings=settings,
                    consistency=consistency,
                    validate=question.validate,
                )
                found.append(explanations.Told(question.label, question.source, answer))
            except (InvalidRequest, NotFound) as error:
                where = f"{question.source}: {question.label}: ".removeprefix(": ")
                refused.extend(f"{where}{text}" for text in explained(error))
            progress(done, len(questions))
    if found:
        explanations.show(found, options.output, options.cluster)
    for text in refused:
        printing.note(prefixed(text))
    if refused:
        return BAD_INPUT
    return DONE if all(told.answer.explanation.fitting for told in found) else NO_NODE_FITS
