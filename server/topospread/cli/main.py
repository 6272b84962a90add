"""The command `topospread`: runs a verb and turns its errors into messages and exit codes.

Exit codes: 0 done, 1 the answer is no, 2 bad input or usage, 3 server out of reach, 130 Ctrl-C,
143 SIGTERM while something was written.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import sys
import traceback
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

import click
from typing_extensions import override

from topospread.cli import errors
from topospread.cli.options import ClientOptions, last_output, output_option, server_options
from topospread_client import (
    DeadlineExceeded,
    InvalidRequest,
    NotSupported,
    TopospreadClientError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

VERBS: Final = (
    *("serve", "apply", "delete", "get", "watch", "dump", "evaluate", "explain", "report"),
    *("lint", "place", "reserve", "release", "rank-deletions", "simulate", "plan-rebalance"),
    *("status", "token", "config", "completion", "version"),
)

_TOGETHER: Final = {
    **dict.fromkeys(("place", "reserve", "release"), "placements"),
    **dict.fromkeys(("completion", "version"), "about"),
}
"""Modules of several verbs, which have the verbs' names there.

Any other verb is `command` of the module of its name. A module is imported when a verb is used.
"""

CONTEXT_SETTINGS: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""Of click's, for a group of verbs."""


class LazyGroup(click.Group):
    """Group that imports a verb only when it is used, so that the others start quickly."""

    verbs: ClassVar[Sequence[str]] = VERBS

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.verbs)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.verbs:
            return None
        name = _TOGETHER.get(cmd_name, cmd_name.replace("-", "_"))
        module = importlib.import_module(f"topospread.cli.commands.{name}")
        command: click.Command = getattr(module, cmd_name if cmd_name in _TOGETHER else "command")
        return command


def _print_version(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        from topospread.cli.commands.about import version_line

        click.echo(version_line())
        context.exit()


@click.group(cls=LazyGroup, no_args_is_help=True, context_settings=CONTEXT_SETTINGS)
@server_options
@output_option
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version of this command and exit.",
)
def root() -> None:
    """Query, update and run a pod-topology-spread server.

    Options that say which server and how to print may stand before the verb or after it.
    """


def run(
    arguments: Sequence[str] | None = None,
    command: click.Command = root,
    name: str = "topospread",
    options: ClientOptions | None = None,
) -> int:
    """Run a command line, or that of the process, and return its exit code; print its errors."""
    _open_streams()
    options = options or ClientOptions()
    try:
        code = command.main(arguments, prog_name=name, standalone_mode=False, obj=options)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as asked:
        # Of a group without a verb: an answer, no error.
        click.echo(asked.ctx.get_help())
        return errors.DONE
    except SystemExit:
        # click exits so when the reader of a pipe closes it (`| head`), which is no error.
        return errors.DONE
    except RuntimeError as failed:
        # click's Abort is one; of an interrupt amid threading.Condition.wait the lock makes one.
        interrupt = failed.__context__
        if not isinstance(failed, click.Abort) and not isinstance(interrupt, KeyboardInterrupt):
            raise
        if isinstance(interrupt, errors.Terminated):
            click.echo("topospread: terminated", err=True)
            return errors.TERMINATED
        click.echo("topospread: interrupted", err=True)
        return errors.INTERRUPTED
    except (click.ClickException, TopospreadClientError, UnicodeEncodeError) as failed:
        words = sys.argv[1:] if arguments is None else arguments
        # Where options cannot be parsed, those behind the mistake have not been.
        unparsed = isinstance(failed, click.UsageError) and last_output(words) == "json"
        return _print_error(errors.as_click_exception(failed), options, unparsed=unparsed)
    except OSError as failed:
        message = f"cannot be written or read: {failed}"
        if _is_of_stdout(failed):
            message = f"stdout cannot be written: {failed.strerror}"
        _discard_stdout()
        return _print_error(errors.BadInput(message), options)
    return code if isinstance(code, int) else errors.DONE


def _print_error(
    error: click.ClickException, options: ClientOptions, *, unparsed: bool = False
) -> int:
    if options.output == "json" or unparsed:
        from topospread.cli import documents

        # The last line on stderr.
        click.echo(json.dumps(documents.document("Error", error=_error_content(error))), err=True)
    else:
        click.echo(errors.error_line(error), err=True)
    if isinstance(error, errors.Unreachable | errors.CallsFailed):
        return error.code
    return errors.BAD_INPUT


def _error_content(error: click.ClickException) -> dict[str, Any]:
    from topospread.cli import documents

    lines = errors.message_of(error).split("\n")
    message = "\n".join(map(errors.printable, lines))
    if not isinstance(error, errors.CallsFailed):
        reason = "BAD_USAGE" if isinstance(error, click.UsageError) else "BAD_INPUT"
        if isinstance(error, errors.Unreachable):
            reason = "OUT_OF_REACH"
        return {"reason": reason, "message": message}
    first = error.failed[0].error
    content: dict[str, Any] = {} if first.code is None else {"code": first.code.name}
    content |= {"reason": _reason(first), "message": message}
    if first.metadata:
        content["metadata"] = {key: errors.printable(text) for key, text in first.metadata.items()}
    if first.retry_after is not None:
        content["retryAfter"] = documents.seconds(first.retry_after)
    violations = [
        documents.joined(each.subject or {}, violation)
        for each in error.failed
        if isinstance(each.error, InvalidRequest)
        for violation in each.error.violations
    ]
    if violations:
        content["violations"] = violations[: errors.MAX_LINES]
    return content


def _reason(error: TopospreadClientError) -> str:
    """Reason that the server gave, or would have given; else one of this program's."""
    if error.reason:
        return error.reason
    if isinstance(error, DeadlineExceeded):
        return "DEADLINE_EXCEEDED"
    if isinstance(error, NotSupported):
        return "METHOD_NOT_SERVED"
    return "BAD_INPUT" if errors.exit_code_of(error) == errors.BAD_INPUT else "OUT_OF_REACH"


def _open_streams() -> None:
    """Make stdout and stderr exist and take any text."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # The parent process closed it. Writing to stdout then fails, as it would have; what
            # is written to stderr is lost.
            mode = os.O_RDONLY if name == "stdout" else os.O_WRONLY
            devnull = open(  # noqa: SIM115 # open until the process ends
                os.open(os.devnull, mode), "w", encoding="utf-8"
            )
            setattr(sys, name, devnull)
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _is_of_stdout(error: OSError) -> bool:
    """Whether an error comes from printing an answer, and not from another file."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return error.filename is None and frames[-1].f_globals["__name__"] in {__name__, "click.utils"}


def _discard_stdout() -> None:
    """Discard what stdout has not written: at exit Python would try it again."""
    try:
        sys.stdout.flush()
    except OSError:
        with open(os.devnull, "wb") as devnull:
            os.dup2(devnull.fileno(), sys.stdout.fileno())


def main() -> NoReturn:
    """Run the console script."""
    sys.exit(run())
