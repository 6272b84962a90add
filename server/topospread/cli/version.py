"""`topospread version`: which version this is."""

from __future__ import annotations

import platform
from importlib.metadata import version

import click


@click.command("version")
def command() -> None:
    """Print the version of this command."""
    click.echo(f"topospread {version('topospread')} (Python {platform.python_version()})")
