"""Options of several verbs: which manifests, by which rules pods are judged, and how fresh."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from topospread.cli import manifest_files
from topospread.cli.errors import BadInput
from topospread.cli.field_validation import FieldValidation
from topospread.cli.options import PATH
from topospread_client import Consistency, Fit, ManifestError, Settings, args_from_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FITS: Final = {
    "spread-only": Fit.SPREAD_ONLY,
    "node": Fit.NODE,
    "node-and-resources": Fit.NODE_AND_RESOURCES,
}
"""Values of `--fit`."""

_VALIDATIONS: Final = {
    **{each.value: each for each in FieldValidation},
    "true": FieldValidation.STRICT,
    "false": FieldValidation.IGNORE,
}
"""Values of `--validate`, as kubectl takes them."""

_FULL: Final = "full"
_BOOLEANS: Final = {"true": True, "false": False}

_C = TypeVar("_C", bound="Callable[..., Any]")


def input_options(*, required: bool) -> Callable[[_C], _C]:
    """Add ``paths``, ``recursive`` and ``namespace`` to a verb."""

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
            type=PATH,
            help="File, directory, or - for standard input; may be given several times.",
        )(command)

    return decorate


def fit_option(command: _C) -> _C:
    """Add ``fit``: which of the scheduler's filters beside spreading are asked; all by default."""
    return click.option(
        "--fit",
        type=click.Choice(list(FITS)),
        default="node-and-resources",
        show_default=True,
        help="What to ask beside spreading.",
    )(command)


def all_namespaces_option(command: _C) -> _C:
    """Add ``all_namespaces``, which kubectl needs and people type: here it is the default."""
    return click.option(
        "-A", "--all-namespaces", is_flag=True, help="All namespaces, which is the default."
    )(command)


def check_all_namespaces(*, all_namespaces: bool, namespace: str | None) -> None:
    """Refuse `-A` beside `-n`.

    Raises:
        UsageError: both are given.
    """
    if all_namespaces and namespace:
        raise click.UsageError("-A is all namespaces and -n is one: give one of them")


def consistency_option(command: _C) -> _C:
    """Add ``consistency``: how fresh the state must be that pods are judged on."""
    return click.option(
        "--consistency",
        default=_FULL,
        show_default=True,
        metavar="full|minimize-latency|REVISION",
        help="See every write before this call; answer from the state at hand; or wait for this "
        "revision.",
    )(command)


def validation_option(command: _C) -> _C:
    """Add ``validation``: how strictly manifests are checked."""
    return click.option(
        "--validate",
        "validation",
        type=click.Choice(list(_VALIDATIONS)),
        callback=lambda context, parameter, word: _VALIDATIONS[word],
        default=FieldValidation.STRICT.value,
        show_default=True,
        metavar="strict|warn|ignore",
        help="What becomes of fields that Kubernetes does not have, misspelt ones for example. "
        "With ignore, constraints that an API server would refuse are taken, too.",
    )(command)


def consistency_of(option: str) -> Consistency | None:
    """Consistency that `--consistency` asks for; None for the state at hand.

    Raises:
        BadInput: the option is empty.
    """
    if not option:
        raise BadInput(
            "--consistency is empty: write full, minimize-latency, or the revision of an answer"
        )
    if option == _FULL:
        return Consistency(fully_consistent=True)
    if option == "minimize-latency":
        return None
    return Consistency(at_least_as_fresh=option)


def rules_options(command: _C) -> _C:
    """Add ``args_file``, ``profile`` and ``gates`` to a verb."""
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
        type=PATH,
        help="Judge by these PodTopologySpreadArgs.",
    )(command)


def settings_of(
    args_file: str | None, profile: str | None, gates: Sequence[str]
) -> Settings | None:
    """Settings that the options of :func:`rules_options` give; None without any of them.

    Raises:
        BadInput: args that cannot be read, or a gate that is neither true nor false.
    """
    if args_file and profile:
        raise click.UsageError("--args stands instead of a profile's arguments: give one of them")
    if not (args_file or profile or gates):
        return None
    args = None
    if args_file:
        value = manifest_files.read_value(args_file)
        if not isinstance(value, dict):
            raise BadInput(f"{args_file}: expected PodTopologySpreadArgs")
        try:
            args = args_from_manifest(value)
        except ManifestError as error:
            raise BadInput(f"{args_file}: {error}") from error
    return Settings(profile, args, dict(_gate(gate) for gate in gates))


def _gate(text: str) -> tuple[str, bool]:
    name, equals, value = text.partition("=")
    on = _BOOLEANS.get(value.lower())
    if not equals or on is None:
        raise BadInput(f"--gate {text}: write NAME=true or NAME=false")
    return name, on
