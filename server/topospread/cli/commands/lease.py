"""`topospread lease`: show which process syncs a cluster."""

from __future__ import annotations

import click

from topospread.cli import documents, output
from topospread.cli.errors import DONE
from topospread.cli.options import ClientOptions, output_option, pass_options, server_options


@click.group("lease", short_help="Show which process syncs a cluster.")
def command() -> None:
    """Show the lease of the one process that syncs a cluster."""


@command.command("get")
@server_options
@output_option
@pass_options
def get(options: ClientOptions) -> int:
    """Show the holder of the cluster's lease and the time left. The lease is not acquired.

    Exits with 2 when the lease has no holder.
    """
    with options.client() as client:
        found = client.get_lease()
    lease = found.lease
    if options.output in {"json", "yaml"}:
        documents.show("LeaseStatus", options.output, cluster=options.cluster, answer=found)
    elif options.output == "name":
        output.echo(lease.holder_identity)
    else:
        output.fields(
            [
                ("cluster", options.cluster),
                ("holder", lease.holder_identity),
                ("until", documents.moment(lease.expire_time) if lease.expire_time else ""),
                ("remaining", output.seconds(lease.remaining)),
                ("trace", found.trace_id),
            ]
        )
    return DONE
