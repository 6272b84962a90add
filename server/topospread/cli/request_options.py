"""Options of several verbs: which manifests, by which rules pods are judged, and how fresh."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from topospread.cli import manifest_files, output
from topospread.cli.errors import BadInput
from topospread.cli.manifest_objects import FieldValidation
from topospread.cli.options import PATH
from topospread.kube.versions import parse_version
from topospread.spread.settings import known_version, known_versions
from topospread_client import ManifestError, args_from_manifest
from topospread_proto.v1 import common_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_C = TypeVar("_C", bound="Callable[..., Any]")
_R = TypeVar("_R", bound=Any)

_FITS: Final[Mapping[str | None, common_pb2.Fit.ValueType]] = {
    "spread-only": common_pb2.FIT_SPREAD_ONLY,
    "node": common_pb2.FIT_NODE,
    "all": common_pb2.FIT_ALL,
}
_VALIDATIONS: Final = {
    **{each.value: each for each in FieldValidation},
    "true": FieldValidation.STRICT,
    "false": FieldValidation.IGNORE,
}
"""Values of `--validate`, as kubectl takes them."""

_FULL: Final = "full"
_BOOLEANS: Final = {"true": True, "false": False}


def warn_of_version(text: str) -> None:
    """Warn where a Kubernetes version is not known, by whose rules it is judged instead."""
    version = parse_version(text)
    if version is not None and (known := known_version(version)) != version:
        output.warn(
            f"Kubernetes {version} is not known here ({known_versions()} are): judged by the rules"
            f" of {known}"
        )


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """What the options of :func:`request_options` say, for the fields of requests.

    None is no setting, and the state at hand; an unspecified fit leaves it to the server.
    """

    settings: common_pb2.Settings | None = None
    consistency: common_pb2.Consistency | None = None
    validation: FieldValidation = FieldValidation.STRICT
    fit: common_pb2.Fit.ValueType = common_pb2.FIT_UNSPECIFIED

    def judged_as(self, kubernetes_version: str) -> RequestOptions:
        """The same, judged by the rules of a version; warns where a newer one is not known."""
        warn_of_version(kubernetes_version)
        settings = common_pb2.Settings(kubernetes_version=kubernetes_version)
        if self.settings is not None:
            settings.MergeFrom(self.settings)
        return replace(self, settings=settings)

    def fill(self, request: _R) -> _R:
        """Set those of the fields that a request has, and return it.

        A validation that is set stays: pods of the state have one of their own.
        """
        names = request.DESCRIPTOR.fields_by_name
        for name in ("settings", "consistency"):
            value = getattr(self, name)
            if value is not None and name in names:
                getattr(request, name).CopyFrom(value)
        if "fit" in names:
            request.fit = self.fit
        if "validation" in names and not request.validation:
            request.validation = self.validation.of_constraints
        return request


def request_options(*names: str, fit_help: str = "") -> Callable[[_C], _C]:
    """Add options of requests to a verb, which takes what they say as `asked`.

    They fill the fields of these names: settings, consistency, validation, fit. `fit_help` is of
    `--fit` where the server chooses what it is without the option.
    """

    def decorate(verb: _C) -> _C:
        def asking(*args: Any, **values: Any) -> Any:
            said: dict[str, Any] = {}
            if "settings" in names:
                keys = ("args_file", "profile", "gates")
                said["settings"] = _settings(*(values.pop(key) for key in keys))
            if "consistency" in names:
                said["consistency"] = _consistency(values.pop("consistency"))
            if "validation" in names:
                said["validation"] = values.pop("validation")
            if "fit" in names:
                said["fit"] = _FITS.get(values.pop("fit"), common_pb2.FIT_UNSPECIFIED)
            return verb(*args, asked=RequestOptions(**said), **values)

        command: Any = update_wrapper(asking, verb)
        for name in ("consistency", "validation", "settings", "fit"):
            for option in _OPTIONS[name] if name in names else ():
                if name == "fit" and fit_help:
                    option = click.option("--fit", type=click.Choice(list(_FITS)), help=fit_help)
                command = option(command)
        return command  # type: ignore[no-any-return] # click's decorators keep the type

    return decorate


validation_option: Final = click.option(
    "--validate",
    "validation",
    type=click.Choice(list(_VALIDATIONS)),
    callback=lambda context, parameter, word: _VALIDATIONS[word],
    default=FieldValidation.STRICT.value,
    show_default=True,
    metavar="strict|warn|ignore",
    help="What becomes of fields that Kubernetes does not have, misspelt ones for example. "
    "With ignore, constraints that an API server would refuse are taken, too.",
)
"""Adds ``validation``: how strictly manifests are checked."""

_OPTIONS: Final = {
    "settings": (
        click.option(
            "--gate", "gates", multiple=True, metavar="NAME=BOOL", help="Switch a feature gate."
        ),
        click.option(
            "--profile", metavar="NAME", help="Judge by this profile of the server's configuration."
        ),
        click.option(
            "--args",
            "args_file",
            metavar="PATH",
            type=PATH,
            help="Judge by these PodTopologySpreadArgs.",
        ),
    ),
    "consistency": (
        click.option(
            "--consistency",
            default=_FULL,
            show_default=True,
            metavar="full|minimize-latency|REVISION",
            help="See every write before this call; answer from the state at hand; or wait for "
            "this revision.",
        ),
    ),
    "validation": (validation_option,),
    "fit": (
        click.option(
            "--fit",
            type=click.Choice(list(_FITS)),
            default="all",
            show_default=True,
            help="What to ask beside spreading.",
        ),
    ),
}


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


all_namespaces_option: Final = click.option(
    "-A", "--all-namespaces", is_flag=True, help="All namespaces, which is the default."
)
"""Adds ``all_namespaces``, which kubectl needs and people type: here it is the default."""


def _consistency(option: str) -> common_pb2.Consistency | None:
    if not option:
        raise BadInput(
            "--consistency is empty: write full, minimize-latency, or the revision of an answer"
        )
    if option == _FULL:
        return common_pb2.Consistency(fully_consistent=True)
    if option == "minimize-latency":
        return None
    return common_pb2.Consistency(at_least_as_fresh=option)


def _settings(
    args_file: str | None, profile: str | None, gates: Sequence[str]
) -> common_pb2.Settings | None:
    if args_file and profile:
        raise click.UsageError("--args stands instead of a profile's arguments: give one of them")
    if not (args_file or profile or gates):
        return None
    made = common_pb2.Settings(feature_gates=dict(map(_gate, gates)))
    if profile:
        made.profile = profile
    if args_file:
        value = manifest_files.read_value(args_file)
        if not isinstance(value, dict):
            raise BadInput(f"{args_file}: expected PodTopologySpreadArgs")
        try:
            made.args.CopyFrom(args_from_manifest(value))
        except ManifestError as error:
            raise BadInput(f"{args_file}: {error}") from error
    return made


def _gate(text: str) -> tuple[str, bool]:
    name, equals, value = text.partition("=")
    on = _BOOLEANS.get(value.lower())
    if not equals or on is None:
        raise BadInput(f"--gate {text}: write NAME=true or NAME=false")
    return name, on
