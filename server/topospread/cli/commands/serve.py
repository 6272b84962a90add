"""`topospread serve`: run a server until SIGTERM or Ctrl-C."""

from __future__ import annotations

import os
import re
import resource
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from topospread.cli.errors import DONE, BadInput, Unreachable
from topospread.cli.options import PATH
from topospread.cli.output import allow_closed_stdout
from topospread.config.descriptions import SETTINGS, redacted
from topospread.config.loading import load_settings
from topospread.errors import ConfigError, StoreUnavailable, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from topospread.app.server import Server
    from topospread.config.descriptions import Setting
    from topospread.config.settings import ServerSettings

_C = TypeVar("_C", bound="Callable[..., Any]")
_FILE: Final = re.compile(r"^(?:PEM|YAML|kubeconfig) file\b")


def settings_options(command: _C) -> _C:
    """Add an option for each setting of the server, with its unit and its default."""
    for setting in reversed(list(SETTINGS.values())):
        command = _option(setting)(command)
    return command


def _option(setting: Setting) -> Callable[[_C], _C]:
    default, text = setting.default, setting.help
    # A switch has the name of its setting, which --no- before it turns off.
    if isinstance(default, bool):
        flag = f"{setting.flag}/--no-{setting.flag.removeprefix('--')}"
        shown = "on" if default else "off"
        text = f"{text}  [default: {shown}]"
        return click.option(flag, setting.name, default=None, help=text)
    metavar = setting.unit.upper().replace(" ", "-") or "VALUE"
    return click.option(
        setting.flag,
        setting.name,
        default=None,
        metavar=metavar,
        type=PATH if _FILE.search(text) else None,
        help=_help(text, default),
    )


def _help(text: str, default: object) -> str:
    if isinstance(default, tuple):
        default = ",".join(default)
    return f"{text}  [default: {default}]" if default not in ("", None) and default != {} else text


@click.command("serve")
@settings_options
def command(**flags: object) -> int:
    """Serve decisions over gRPC, and metrics and health over HTTP, until SIGTERM or Ctrl-C.

    Each option is also a variable (--decision-queue is TOPOSPREAD_DECISION_QUEUE) and a key
    of a TopospreadConfiguration (decisionQueue). An option goes before a variable, which goes
    before the file. SIGHUP reads the file again.
    """
    _allow_files()
    allow_closed_stdout()
    try:
        _run(load_settings(flags, os.environ))
    except ConfigError as error:
        raise BadInput(*str(error).splitlines()) from error
    except StoreUnavailable as error:
        raise Unreachable(f"{error} (check --store, and that the store is up)") from error
    except Unavailable as error:
        raise Unreachable(str(error)) from error
    return DONE


def _allow_files() -> None:
    """Raise the limit of open files to the system's: each connection is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _run(settings: ServerSettings) -> None:
    """Serve until SIGTERM or SIGINT; SIGHUP reads the configuration again.

    Raises:
        ConfigError: something in the settings cannot be used.
        Unavailable: the store is out of reach, or a process could not start.
    """
    from topospread.telemetry.logs import start_logging

    output = start_logging(settings.log_level, settings.log_format)
    try:
        from topospread.app.runner import ServerRunner

        ServerRunner(settings).run(_announce)
    finally:
        output.close()


def _announce(server: Server) -> None:
    """Print where the server listens, with the port that 0 became; programs read these lines."""
    click.echo(f"topospread {server.version} listens on {server.address}")
    scheme = "https" if server.settings.tls else "http"
    if server.extender_address:
        click.echo(f"scheduler extender on {scheme}://{server.extender_address}/extender/v1")
    if server.expander_address:
        click.echo(f"cluster-autoscaler's expander on {server.expander_address}")
    if server.http_address:
        click.echo(f"metrics and health on {scheme}://{server.http_address}")
    click.echo(f"store {redacted(server.settings)['store']}")
