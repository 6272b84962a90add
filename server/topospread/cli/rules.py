"""The options that say by which rules pods are judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from topospread.cli import completing, documents
from topospread.cli.complaints import BadInput
from topospread_client import ManifestError, Settings, args_from_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_C = TypeVar("_C", bound="Callable[..., Any]")
_SWITCH: Final = {"true": True, "false": False}


def rules_options(command: _C) -> _C:
    """Adds ``args_file``, ``profile`` and ``gates`` to a verb."""
    command = click.option(
        "--gate", "gates", multiple=True, metavar="NAME=BOOL", help="Switch a feature gate."
    )(command)
    command = click.option(
        "--profile", metavar="NAME", help="Judge by this profile of the server's configuration."
    )(command)
    return click.option(
        "--args",
        "args_file",
        metavar="PATH",
        shell_complete=completing.files,
        help="Judge by these PodTopologySpreadArgs.",
    )(command)


def settings_of(
    args_file: str | None, profile: str | None, gates: Sequence[str]
) -> Settings | None:
    """What was said about rules; None when nothing was.

    Raises:
        BadInput: args that cannot be read, or a gate that is neither true nor false.
    """
    if args_file and profile:
        raise click.UsageError("--args stands instead of a profile's arguments: give one of them")
    if not (args_file or profile or gates):
        return None
    args = None
    if args_file:
        value = documents.value_of(args_file)
        if not isinstance(value, dict):
            raise BadInput(f"{args_file}: expected PodTopologySpreadArgs")
        try:
            args = args_from_manifest(value)
        except ManifestError as error:
            raise BadInput(f"{args_file}: {error}") from error
    return Settings(profile, args, dict(_switch(gate) for gate in gates))


def _switch(gate: str) -> tuple[str, bool]:
    name, equals, text = gate.partition("=")
    on = _SWITCH.get(text.lower())
    if not equals or on is None:
        raise BadInput(f"--gate {gate}: write NAME=true or NAME=false")
    return name, on
