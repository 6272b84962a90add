"""`topospread version`: print the version of this command."""

from __future__ import annotations

import platform
from importlib.metadata import version

import click

from topospread.cli import documents
from topospread.cli.errors import DONE
from topospread.cli.options import ClientOptions, output_option, pass_given_options


def version_line() -> str:
    """Version of this command, for people."""
    return f"topospread {version('topospread')} (Python {platform.python_version()})"


@click.command("version")
@output_option
@pass_given_options
def command(options: ClientOptions) -> int:
    """Print the version of this command."""
    own, python = version("topospread"), platform.python_version()
    if options.output in {"json", "yaml"}:
        documents.show("Version", options.output, version=own, python_version=python)
    elif options.output == "name":
        click.echo(own)
    else:
        click.echo(version_line())
    return DONE
