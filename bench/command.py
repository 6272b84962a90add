"""Run a command of benches or campaigns as the command line runs its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from topospread.cli import errors
from topospread_client import TopospreadClientError

if TYPE_CHECKING:
    from collections.abc import Sequence


def run_command(command: click.Command, prog_name: str, arguments: Sequence[str] | None) -> int:
    """Run a command and return its exit code, which is one of those of `topospread`."""
    try:
        code = command.main(arguments, prog_name=prog_name, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as asked:
        click.echo(asked.ctx.get_help())
        return errors.DONE
    except click.Abort:
        return errors.INTERRUPTED
    except (click.ClickException, TopospreadClientError) as failed:
        complaint = errors.as_click_exception(failed)
        click.echo(errors.error_line(complaint), err=True)
        if isinstance(complaint, errors.Unreachable | errors.CallsFailed):
            return complaint.code
        return errors.BAD_INPUT
    return code if isinstance(code, int) else errors.DONE
