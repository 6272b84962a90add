"""`topospread place`: choose the best node for pods and hold it for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from topospread.cli import documents, output
from topospread.cli.errors import DONE, NO_NODE_FITS, CallErrors
from topospread.cli.kinds import node_name, node_path
from topospread.cli.manifest_objects import pod_requests, refuse_workloads
from topospread.cli.options import ClientOptions, output_option, pass_options, server_options
from topospread.cli.request_options import (
    FITS,
    input_options,
    rules_options,
    settings_of,
    validation_option,
)
from topospread_client import InvalidRequest, NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.cli.field_validation import FieldValidation
    from topospread.cli.manifest_objects import PodRequest
    from topospread_client import PlacePodResponse


@click.command("place")
@click.argument("stored", nargs=-1, metavar="[NAME]...")
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
    options: ClientOptions,
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
    validation: FieldValidation,
) -> int:
    """Choose the best node for pods, one after the other, and hold it until they are bound.

    What is held counts like a bound pod. Placing a pod again renews it. The exit code is 1 when a
    pod fits nowhere.
    """
    requests = pod_requests(
        stored, paths, recursive=recursive, namespace=namespace, validation=validation
    )
    refuse_workloads(requests)
    settings = settings_of(args_file, profile, gates)
    found: list[tuple[PodRequest, PlacePodResponse]] = []
    errors = CallErrors()
    with options.client() as client, output.progress("placing") as progress:
        for done, request in enumerate(requests, start=1):
            try:
                placed = client.place_pod(
                    request.pod,
                    candidates=[node_name(text) for text in candidates] or None,
                    fit=FITS[fit] if fit else None,
                    reservation_ttl=ttl,
                    seed=seed or None,
                    settings=settings,
                    validation=request.validation,
                )
                found.append((request, placed))
            except (InvalidRequest, NotFound) as error:
                errors.add(error, request.title, request.subject)
            progress(done, len(requests))
    if found:
        _show(found, options)
    errors.raise_all()
    return DONE if all(placed.node for _, placed in found) else NO_NODE_FITS


def _show(found: Sequence[tuple[PodRequest, PlacePodResponse]], options: ClientOptions) -> None:
    if options.output == "name":
        for _, placed in found:
            output.echo(node_path(placed.node))
    elif options.output == "table":
        rows = [
            [request.label, placed.node, _until(placed), ", ".join(placed.not_modelled)]
            for request, placed in found
        ]
        output.table(["POD", "NODE", "HELD UNTIL", "NOT LOOKED AT"], rows)
        for request, placed in found:
            if not placed.node:
                output.echo(f"{request.label}: {placed.message or placed.verdict.reasons[0]}")
    else:
        items = [
            {**documents.plain(request.subject), **documents.plain(placed)}
            for request, placed in found
        ]
        documents.show("PlacementList", options.output, cluster=options.cluster, items=items)


def _until(placed: PlacePodResponse) -> str:
    if placed.already_bound:
        return "bound"
    return documents.moment(placed.expire_time) if placed.expire_time else ""
