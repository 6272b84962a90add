"""`topospread completion`: scripts with which shells complete this command."""

from __future__ import annotations

from typing import Final

import click

from topospread.cli.errors import DONE

SHELLS: Final = ("bash", "zsh", "fish")


@click.command("completion", short_help="Print a shell's completion script.")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(context: click.Context, shell: str) -> int:
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
