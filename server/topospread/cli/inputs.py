"""The options of verbs that read manifests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from topospread.cli import completing

if TYPE_CHECKING:
    from collections.abc import Callable

_C = TypeVar("_C", bound="Callable[..., Any]")


def input_options(*, required: bool) -> Callable[[_C], _C]:
    """Adds ``paths``, ``recursive`` and ``namespace`` to a verb."""

    def decorate(command: _C) -> _C:
        command = click.option(
            "-n", "--namespace", metavar="NAME", help="Namespace of objects that name none."
        )(command)
        command = click.option(
            "-R", "--recursive", is_flag=True, help="Look into subdirectories of -f, too."
        )(command)
        return click.option(
            "-f",
            "--filename",
            "paths",
            multiple=True,
            required=required,
            metavar="PATH",
            shell_complete=completing.files,
            help="File, directory, or - for standard input; may be given several times.",
        )(command)

    return decorate
