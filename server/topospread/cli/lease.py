"""`topospread lease`: who feeds a cluster."""

from __future__ import annotations

import click

from topospread.cli import printing, structures
from topospread.cli.complaints import DONE
from topospread.cli.options import Options, output_option, pass_options, server_options


@click.group("lease", short_help="Who feeds a cluster?")
def command() -> None:
    """Show the lease of the one process that feeds a cluster."""


@command.command("get")
@server_options
@output_option
@pass_options
def get(options: Options) -> int:
    """Show who has the cluster's lease, and for how long still. Nothing is taken.

    That nobody has it makes the exit code 2.
    """
    with options.client() as client:
        found = client.get_lease()
    lease = found.lease
    if options.output in {"json", "yaml"}:
        structures.show("LeaseStatus", options.output, cluster=options.cluster, answer=found)
    elif options.output == "name":
        printing.say(lease.holder_identity)
    else:
        printing.fields(
            [
                ("cluster", options.cluster),
                ("holder", lease.holder_identity),
                ("until", structures.moment(lease.expire_time) if lease.expire_time else ""),
                ("remaining", printing.seconds(lease.remaining)),
                ("trace", found.trace_id),
            ]
        )
    return DONE
