"""`topospread reserve`: hold one node for a pod."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from topospread.cli import documents, output
from topospread.cli.errors import DONE, NO_NODE_FITS
from topospread.cli.kinds import node_name, node_path
from topospread.cli.manifest_objects import pod_requests, refuse_workloads
from topospread.cli.options import ClientOptions, output_option, pass_options, server_options
from topospread.cli.request_options import (
    input_options,
    rules_options,
    settings_of,
    validation_option,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.cli.field_validation import FieldValidation


@click.command("reserve", short_help="Hold one node for a pod.")
@click.argument("node")
@click.argument("stored", nargs=-1, metavar="[NAME]")
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
    options: ClientOptions,
    node: str,
    stored: Sequence[str],
    paths: Sequence[str],
    recursive: bool,
    namespace: str | None,
    ttl: float | None,
    args_file: str | None,
    profile: str | None,
    gates: Sequence[str],
    validation: FieldValidation,
) -> int:
    """Hold NODE for a pod until it is bound, if the pod's hard constraints allow it.

    `place` chooses the node itself. The exit code is 1 when the constraints refuse it.
    """
    requests = pod_requests(
        stored, paths, recursive=recursive, namespace=namespace, validation=validation
    )
    refuse_workloads(requests)
    if len(requests) > 1:
        raise click.UsageError(f"one node is held for one pod; here are {len(requests)}")
    (request,) = requests
    with options.client() as client:
        reserved = client.reserve_node(
            request.pod,
            node_name(node),
            reservation_ttl=ttl,
            settings=settings_of(args_file, profile, gates),
            validation=request.validation,
        )
    if options.output == "name":
        output.echo(node_path(reserved.node))
    elif options.output == "table":
        until = documents.moment(reserved.expire_time) if reserved.expire_time else ""
        output.fields(
            [
                ("pod", request.label),
                ("node", reserved.node),
                ("held until", "bound" if reserved.already_bound else until),
                ("refused", ", ".join(reserved.verdict.reasons)),
                ("revision", reserved.revision),
                ("trace", reserved.trace_id),
            ]
        )
    else:
        item = {**documents.plain(request.subject), **documents.plain(reserved)}
        documents.show("PlacementList", options.output, cluster=options.cluster, items=[item])
    return DONE if reserved.verdict.success else NO_NODE_FITS
