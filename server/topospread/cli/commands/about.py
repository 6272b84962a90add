"""Verbs of a few lines: `completion` and `version`."""

from __future__ import annotations

import platform
from importlib.metadata import version as version_of
from typing import Final

import click

from topospread.cli import documents
from topospread.cli.errors import DONE
from topospread.cli.options import ClientOptions, output_option, pass_given_options

SHELLS: Final = ("bash", "zsh", "fish")


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
