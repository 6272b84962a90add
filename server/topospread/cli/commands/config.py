"""`topospread config`: check a configuration without starting a server."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import click

from topospread.access.file import read_access
from topospread.cli import documents, output
from topospread.cli.errors import DONE, BadInput
from topospread.cli.options import PATH
from topospread.codec.scheduler_config import configured_version, read_rules
from topospread.config.descriptions import SETTINGS, redacted
from topospread.config.files import read_config
from topospread.config.loading import load_settings
from topospread.errors import ConfigError
from topospread.spread.settings import GATE_NAMES, ConfiguredRules, known_version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topospread.config.settings import ServerSettings
    from topospread.spread.settings import FeatureGates, Profile

_FORMS: Final = click.Choice(["table", "json", "yaml"])


@click.group("config", short_help="Look at configuration.")
def command() -> None:
    """Look at configuration without starting a server."""


@command.command("check")
@click.argument("file", required=False, type=PATH)
@click.option("-o", "--output", "form", type=_FORMS, default="table", help="How to print it.")
def check(file: str | None, form: str) -> int:
    """Read FILE and the environment as `serve` would, and show what would hold.

    FILE holds a TopospreadConfiguration, a KubeSchedulerConfiguration, or both; without one
    TOPOSPREAD_CONFIG names it, or the defaults are shown.
    """
    try:
        settings = load_settings({"config": file}, os.environ)
        text = read_config(settings.config) if settings.config else ""
        rules = read_rules(text, settings.config or "defaults", settings.feature_gates)
        gates = rules.gates_of(known_version(configured_version(settings.kubernetes_version)))
        if settings.access_file:
            read_access(read_config(settings.access_file), settings.access_file)
    except ConfigError as error:
        raise BadInput(*str(error).splitlines()) from error
    for warning in rules.warnings:
        output.warn(f"warning: {warning}")
    if form == "table":
        _print(_written(settings), rules, gates)
    else:
        _show(_written(settings), rules, gates, form)
    return DONE


def _print(settings: Mapping[str, object], rules: ConfiguredRules, in_force: FeatureGates) -> None:
    columns = ["PROFILE", "DEFAULTING", "DEFAULT CONSTRAINTS"]
    rows = [
        [name, profile.defaulting, "; ".join(_constraints(profile))]
        for name, profile in rules.profiles.items()
    ]
    output.table(columns, rows)
    click.echo()
    gates = _gates(in_force)
    states = [[name, "on" if on else "off"] for name, on in gates.items()]
    output.table(["FEATURE GATE", "STATE"], states)
    click.echo()
    output.table(["SETTING", "VALUE"], settings.items())


def _show(
    settings: Mapping[str, object], rules: ConfiguredRules, in_force: FeatureGates, form: str
) -> None:
    profiles = [
        {
            "name": name,
            "defaultingType": profile.defaulting,
            "defaultConstraints": documents.plain(profile.default_constraints),
        }
        for name, profile in rules.profiles.items()
    ]
    documents.show(
        "ConfigurationCheck",
        form,
        profiles=profiles,
        feature_gates=_gates(in_force),
        settings=settings,
    )


def _constraints(profile: Profile) -> list[str]:
    return [
        f"{each.topology_key} {each.when_unsatisfiable} maxSkew {each.max_skew}"
        for each in profile.defaults
    ]


def _gates(gates: FeatureGates) -> dict[str, bool]:
    return {name: bool(getattr(gates, field)) for name, field in GATE_NAMES.items()}


def _written(settings: ServerSettings) -> dict[str, object]:
    """Settings by key, as a configuration file may have them."""
    shown = redacted(settings)
    return {one.key: _plain(shown[one.key], one.unit) for one in SETTINGS.values()}


def _plain(value: object, unit: str) -> object:
    if value is None:
        return "off"
    if unit == "seconds" and isinstance(value, float):
        return documents.seconds(value, digits=9)
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, dict):
        return value
    return value if isinstance(value, bool | int | float | str) else str(value)
