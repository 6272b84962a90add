"""Verbs of a few lines: `lease`, `completion` and `version`."""

from __future__ import annotations

import platform
from importlib.metadata import version as version_of
from typing import Final

import click

from topospread.cli import documents, output
from topospread.cli.errors import DONE
from topospread.cli.options import ClientOptions, output_option, pass_given_options, server_verb
from topospread_proto.v1.lease_service_pb2 import GetLeaseRequest

SHELLS: Final = ("bash", "zsh", "fish")


@click.group("lease", short_help="Show which process syncs a cluster.")
def lease() -> None:
    """Show the lease of the one process that syncs a cluster."""


@lease.command("get")
@server_verb
def get(options: ClientOptions) -> int:
    """Show the holder of the cluster's lease and the time left. The lease is not acquired.

    Exits with 2 when the lease has no holder.
    """
    with options.client() as client:
        found = client.call("GetLease", GetLeaseRequest())
    held = found.lease
    documents.present(
        options.output,
        "LeaseStatus",
        lambda: output.fields(
            [
                ("cluster", options.cluster),
                ("holder", held.holder_identity),
                ("until", documents.moment(held.expire_time)),
                ("remaining", output.seconds(held.remaining.ToTimedelta().total_seconds())),
                ("trace", documents.trace_id(found)),
            ]
        ),
        [held.holder_identity],
        cluster=options.cluster,
        answer=found,
    )
    return DONE


@click.command("completion", short_help="Print a shell's completion script.")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    r"""Print the script that lets SHELL complete this command.

    \b
    bash:  source <(topospread completion bash)
    zsh:   source <(topospread completion zsh), after compinit
    fish:  topospread completion fish | source
    """
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    if made is None:
        raise AssertionError("click knows all of these shells")
    root = context.find_root()
    click.echo(made(root.command, {}, "topospread", "_TOPOSPREAD_COMPLETE").source())
    return DONE


def version_line() -> str:
    """Version of this command, for people."""
    return f"topospread {version_of('topospread')} (Python {platform.python_version()})"


@click.command("version")
@output_option
@pass_given_options
def version(options: ClientOptions) -> int:
    """Print the version of this command."""
    own, python = version_of("topospread"), platform.python_version()
    if options.output in {"json", "yaml"}:
        documents.show("Version", options.output, version=own, python_version=python)
    elif options.output == "name":
        click.echo(own)
    else:
        click.echo(version_line())
    return DONE
