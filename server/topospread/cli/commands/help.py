"""`topospread help`: the help of this command or of one of its verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from topospread.cli.errors import DONE
from topospread.cli.suggestions import unknown_command

if TYPE_CHECKING:
    from collections.abc import Sequence


def _complete(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    group = context.find_root().command
    known = group.list_commands(context) if isinstance(group, click.Group) else []
    return [each for each in known if each.startswith(typed)]


@click.command("help", short_help="Show the help of a verb.")
@click.argument("verbs", nargs=-1, metavar="[VERB]...", shell_complete=_complete)
@click.pass_context
def command(context: click.Context, verbs: Sequence[str]) -> int:
    """Show the help of this command, or of VERB: `help evaluate`, `help config check`."""
    shown = context.find_root()
    for verb in verbs:
        group = shown.command
        if not isinstance(group, click.Group):
            raise click.UsageError(f"{shown.command_path!r} has no verbs below it", shown)
        found = group.get_command(shown, verb)
        if found is None:
            raise unknown_command(group, shown, verb)
        shown = click.Context(found, parent=shown, info_name=verb)
    click.echo(shown.get_help())
    return DONE
