"""The command `topospread`: finds the verb, runs it, and says what went wrong in a line and a code.

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
from typing import TYPE_CHECKING, Final, NoReturn

import click
from typing_extensions import override

from topospread.cli import complaints, error_documents, structures
from topospread.cli.options import Options, last_output, output_option, server_options
from topospread_client import TopospreadClientError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VERBS: Final = (
    "serve",
    "sync",
    "apply",
    "delete",
    "get",
    "watch",
    "evaluate",
    "explain",
    "place",
    "reserve",
    "release",
    "rank-deletions",
    "simulate",
    "plan-rebalance",
    "status",
    "lease",
    "store",
    "token",
    "conformance",
    "bench",
    "config",
    "version",
)
"""Each verb is `command` of the module with its name; it is imported when it is asked for."""

MODULES: Final = {"conformance": "conformance.command", "bench": "bench.command"}
"""Verbs that are a package."""


class Verbs(click.Group):
    """Imports a verb only when it is needed, so that the quick ones stay quick."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        name = MODULES.get(cmd_name, cmd_name.replace("-", "_"))
        module = importlib.import_module(f"topospread.cli.{name}")
        command: click.Command = module.command
        return command


@click.group(
    cls=Verbs,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@server_options
@output_option
def root() -> None:
    """Ask and feed a pod-topology-spread server.

    Options that say which server and how to print may stand before the verb or after it.
    """


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code; what there is to say is on stdout and stderr."""
    _open_streams()
    options = Options()
    try:
        code = root.main(arguments, prog_name="topospread", standalone_mode=False, obj=options)
        sys.stdout.flush()
    except SystemExit:
        # How click ends when the reader of a pipe has enough (`| head`), which is no mistake.
        return complaints.DONE
    except click.Abort as abort:
        if isinstance(abort.__cause__, complaints.Terminated):
            click.echo("topospread: terminated", err=True)
            return complaints.TERMINATED
        click.echo("topospread: interrupted", err=True)
        return complaints.INTERRUPTED
    except (click.ClickException, TopospreadClientError) as failed:
        complaint = complaints.of(failed)
        said = sys.argv[1:] if arguments is None else arguments
        # Where the options cannot be read, those behind the mistake have not been.
        unread = isinstance(failed, click.UsageError) and last_output(said) == "json"
        if options.output == "json" or unread:
            _complain(error_documents.of(complaint))
        else:
            click.echo(complaints.line(complaint), err=True)
        if isinstance(complaint, complaints.Unreachable | complaints.CallsFailed):
            return complaint.code
        return complaints.BAD_INPUT
    except OSError as error:
        said = f"cannot be written or read: {error}"
        if _is_of_stdout(error):
            said = f"stdout cannot be written: {error.strerror}"
        _leave_stdout()
        if options.output == "json":
            _complain(error_documents.plain("BAD_INPUT", said))
        else:
            click.echo(complaints.prefixed(said), err=True)
        return complaints.BAD_INPUT
    return code if isinstance(code, int) else complaints.DONE


def _complain(error: Mapping[str, object]) -> None:
    """Print an error for a program: one line, the last on stderr."""
    document = structures.document("Error", error=error)
    click.echo(json.dumps(document), err=True)


def _open_streams() -> None:
    """Let there be a stdout and a stderr that take any text, whatever they lead to."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # Closed by whoever started this. What is printed is missed on stdout alone: what is
            # written to it fails as it would have.
            mode = os.O_RDONLY if name == "stdout" else os.O_WRONLY
            # Held open until the end.
            nowhere = open(os.open(os.devnull, mode), "w", encoding="utf-8")  # noqa: SIM115
            setattr(sys, name, nowhere)
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _is_of_stdout(error: OSError) -> bool:
    """Whether it came up where answers are printed; an error of a file elsewhere does not."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return error.filename is None and frames[-1].f_globals["__name__"] in {__name__, "click.utils"}


def _leave_stdout() -> None:
    """Nothing more is written to it: at its end Python would try what has failed again."""
    try:
        sys.stdout.flush()
    except OSError:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


def main() -> NoReturn:
    """The console script."""
    if "_TOPOSPREAD_COMPLETE" in os.environ:
        from topospread.cli import completing

        completing.register()
    sys.exit(run())
