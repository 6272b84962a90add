"""`topospread store accept`: take what a store holds as the truth."""

from __future__ import annotations

import click

from topospread.cli import documents, output
from topospread.cli.errors import DONE
from topospread.cli.options import ClientOptions, output_option, pass_options, server_options


@click.group("store", short_help="Accept a store that was emptied or exchanged.")
def command() -> None:
    """Decide about a store what a server cannot decide by itself."""


@command.command("accept")
@click.option(
    "--store-identity",
    required=True,
    metavar="ID",
    help="Of the store that is accepted: `topospread status -o json` tells it.",
)
@server_options
@output_option
@pass_options
def accept(options: ClientOptions, store_identity: str) -> int:
    """Take what the store holds now of a cluster as the truth.

    A server that finds its store emptied, restored from elsewhere or exchanged keeps what it knew
    and refuses writes (`status`: store changed), until this is said or every kind was replaced by a
    full list. It holds for all servers of the store. What they knew before is forgotten.
    """
    with options.client() as client:
        accepted = client.accept_store(options.cluster, store_identity)
    if options.output in {"json", "yaml"}:
        documents.show("StoreAcceptance", options.output, cluster=options.cluster, answer=accepted)
    elif options.output == "name":
        click.echo(options.cluster)
    else:
        output.fields([("cluster", options.cluster), ("revision", accepted.revision)])
    return DONE
