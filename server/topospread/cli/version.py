"""`topospread version`: which version this is."""

from __future__ import annotations

import platform
from importlib.metadata import version

import click

from topospread.cli import structures
from topospread.cli.complaints import DONE
from topospread.cli.options import Options, output_option, pass_options


@click.command("version")
@output_option
@pass_options
def command(options: Options) -> int:
    """Print the version of this command."""
    own, python = version("topospread"), platform.python_version()
    if options.output in {"json", "yaml"}:
        structures.show("Version", options.output, version=own, python_version=python)
    elif options.output == "name":
        click.echo(own)
    else:
        click.echo(f"topospread {own} (Python {python})")
    return DONE
