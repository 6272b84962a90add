"""What shells offer while a command line is typed: files where a file is meant, and kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from click.shell_completion import BashComplete, CompletionItem, add_completion_class

if TYPE_CHECKING:
    import click

KINDS: Final = (
    *("nodes", "pods", "services", "replicationcontrollers", "replicasets", "statefulsets"),
    *("workloads", "reservations"),
)


def files(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Leave it to the shell, which knows about files."""
    return [CompletionItem(typed, type="file")]


def kinds(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    """The kinds that `get` knows; `delete` knows all but the last two."""
    known = KINDS if context.command.name == "get" else KINDS[:-2]
    return [each for each in known if each.startswith(typed.lower())]


class Bash(BashComplete):
    """Where nothing is offered bash offers files, which click's own script forbids."""

    source_template = BashComplete.source_template.replace(
        "complete -o nosort", "complete -o nosort -o bashdefault -o default"
    )


def register() -> None:
    """Take the place of click's own script for bash."""
    add_completion_class(Bash)
