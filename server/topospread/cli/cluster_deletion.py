"""`topospread delete cluster NAME`: a cluster as a whole, once it is sure that it is meant."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from topospread.cli import documents, output
from topospread.cli.errors import DONE, BadInput
from topospread_client import NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.cli.options import ClientOptions


def delete_cluster(
    options: ClientOptions, names: Sequence[str], *, confirmed: bool, ignore_not_found: bool
) -> int:
    """Delete the cluster that is named, and print how many objects it had.

    Args:
        options: of the command line; the cluster that they name plays no part.
        names: of clusters; more than one is refused.
        confirmed: do not ask.
        ignore_not_found: whether the exit code is 0 where there is no such cluster.

    Raises:
        BadInput: it was not confirmed.
    """
    if len(names) != 1:
        raise click.UsageError("a cluster is deleted as a whole: name one at a time")
    (name,) = names
    if not confirmed:
        _ask(name)
    with options.client() as client:
        try:
            deleted = client.delete_cluster(name)
        except NotFound:
            if ignore_not_found:
                output.warn(f"cluster {name} is not there")
                return DONE
            raise
    if options.output in {"json", "yaml"}:
        documents.show("ClusterDeletion", options.output, cluster=name, answer=deleted)
    elif options.output == "name":
        output.echo(f"cluster/{name}")
    else:
        output.echo(f"cluster/{name} deleted, with {deleted.object_count} objects")
    return DONE


def _ask(name: str) -> None:
    """Have the name typed again, by a person at a terminal."""
    if not sys.stdin.isatty():
        raise BadInput(
            f"cluster {name} would be deleted with all its objects and reservations: "
            "say --yes if that is meant"
        )
    question = f"Cluster {name} is deleted with all its objects and reservations. Type its name"
    if click.prompt(question, default="", show_default=False, err=True) != name:
        raise BadInput(f"that is not its name: cluster {name} is left as it is")
