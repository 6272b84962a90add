"""`topospread explain`: why do these pods fit where they do, and what would let them in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from topospread.cli import explanations, printing
from topospread.cli.complaints import DONE, NO_NODE_FITS, Refusals
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
from topospread_client import InvalidRequest, NotFound

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
    freshness: str,
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
    consistency = consistency_of(freshness)
    found: list[explanations.Told] = []
    refusals = Refusals()
    with options.client() as client, printing.progress("explaining") as progress:
        for done, question in enumerate(questions, start=1):
            try:
                answer = client.explain_pod(
                    question.pod,
                    fit=FITS[fit],
                    domain_limit=domains,
                    settings=settings,
                    consistency=consistency,
                    validation=question.validation,
                )
                found.append(explanations.Told(question, answer))
            except (InvalidRequest, NotFound) as error:
                refusals.add(question, error)
            progress(done, len(questions))
    if found:
        explanations.show(found, options.output, options.cluster)
    refusals.end()
    return DONE if all(told.fits for told in found) else NO_NODE_FITS
