"""`topospread evaluate`: on which nodes pods may run, and which are best."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from topospread.cli import output
from topospread.cli.errors import DONE, NO_NODE_FITS, CallErrors
from topospread.cli.manifest_objects import pod_requests
from topospread.cli.options import ClientOptions, output_option, pass_options, server_options
from topospread.cli.render import evaluation
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
from topospread.cli.state_source import from_option
from topospread_client import InvalidRequest, NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.cli.field_validation import FieldValidation


@click.command("evaluate", short_help="Judge pods: where may they go?")
@click.argument("stored", nargs=-1, metavar="[NAME]...")
@input_options(required=False)
@click.option(
    "--top", type=click.IntRange(1, 1000), default=5, show_default=True, help="Nodes to name."
)
@fit_option
@rules_options
@validation_option
@consistency_option
@from_option
@server_options
@output_option
@pass_options
def command(
    options: ClientOptions,
    stored: Sequence[str],
    paths: Sequence[str],
    recursive: bool,
    namespace: str | None,
    top: int,
    fit: str,
    args_file: str | None,
    profile: str | None,
    gates: Sequence[str],
    validation: FieldValidation,
    consistency: str,
) -> int:
    """Judge pods, from files or by name in the state: which nodes pass, and which are best.

    A node passes if spreading and the scheduler's other filters, as far as --fit asks for them, let
    it; what was not looked at is named. Only soft constraints make a node better than another.

    Files may hold pods, and workloads for the pod they would make. The exit code is 1 when a pod
    fits nowhere.
    """
    requests = pod_requests(
        stored, paths, recursive=recursive, namespace=namespace, validation=validation
    )
    settings = settings_of(args_file, profile, gates)
    freshness = consistency_of(consistency)
    found: list[evaluation.EvaluatedPod] = []
    errors = CallErrors()
    with options.client() as client, output.progress("evaluating") as progress:
        for done, request in enumerate(requests, start=1):
            try:
                # One call, so that constraints and nodes are of one revision.
                answer = client.explain_pod(
                    request.pod,
                    fit=FITS[fit],
                    domain_limit=1,
                    top_k=top,
                    skip_suggestions=True,
                    settings=settings,
                    consistency=freshness,
                    validation=request.validation,
                )
                found.append(evaluation.EvaluatedPod(request, answer))
            except (InvalidRequest, NotFound) as error:
                errors.add(error, request.title, request.subject)
            progress(done, len(requests))
    if found:
        evaluation.show(found, options.output, options.cluster)
    errors.raise_all()
    return DONE if all(each.fits for each in found) else NO_NODE_FITS
