"""`topospread explain`: why pods fit where they do, and what would let them in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from topospread.cli import output
from topospread.cli.errors import DONE, NO_NODE_FITS, CallErrors
from topospread.cli.manifest_objects import pod_requests
from topospread.cli.options import ClientOptions, output_option, pass_options, server_options
from topospread.cli.render import explanation
from topospread.cli.request_options import (
    FITS,
    consistency_of,
    consistency_option,
    fit_option,
    input_options,
    rules_options,
    settings_of,
    validation_option,
)
from topospread_client import InvalidRequest, NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.cli.field_validation import FieldValidation


@click.command("explain", short_help="Explain where pods may go, by constraint and domain.")
@click.argument("stored", nargs=-1, metavar="[NAME]...")
@input_options(required=False)
@fit_option
@click.option(
    "--domains",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    help="Domains to list of each constraint: those with the fewest pods and with the most.",
)
@rules_options
@validation_option
@consistency_option
@server_options
@output_option
@pass_options
def command(
    options: ClientOptions,
    stored: Sequence[str],
    paths: Sequence[str],
    recursive: bool,
    namespace: str | None,
    fit: str,
    domains: int,
    args_file: str | None,
    profile: str | None,
    gates: Sequence[str],
    validation: FieldValidation,
    consistency: str,
) -> int:
    """Explain pods, from files or by name in the state.

    For each constraint and domain: the pods and nodes that count, the skew if the pod came, who
    holds the minimum and why, and the verdict. For a pod that fits nowhere: what would let it in,
    each tried out by judging it again. The exit code is 1 when a pod fits nowhere.
    """
    if options.output == "name":
        raise click.UsageError("-o name: an explanation is no name: use table, json or yaml")
    requests = pod_requests(
        stored, paths, recursive=recursive, namespace=namespace, validation=validation
    )
    settings = settings_of(args_file, profile, gates)
    freshness = consistency_of(consistency)
    found: list[explanation.ExplainedPod] = []
    errors = CallErrors()
    with options.client() as client, output.progress("explaining") as progress:
        for done, request in enumerate(requests, start=1):
            try:
                answer = client.explain_pod(
                    request.pod,
                    fit=FITS[fit],
                    domain_limit=domains,
                    settings=settings,
                    consistency=freshness,
                    validation=request.validation,
                )
                found.append(explanation.ExplainedPod(request, answer))
            except (InvalidRequest, NotFound) as error:
                errors.add(error, request.title, request.subject)
            progress(done, len(requests))
    if found:
        explanation.show(found, options.output, options.cluster)
    errors.raise_all()
    return DONE if all(each.fits for each in found) else NO_NODE_FITS
