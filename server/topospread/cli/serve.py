"""`topospread serve`: a server, until it is told to stop."""

from __future__ import annotations

import os
import re
import resource
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from topospread.cli import completing
from topospread.cli.complaints import DONE, BadInput, Unreachable
from topospread.cli.printing import allow_closed_stdout
from topospread.config.loading import load_settings
from topospread.config.settings import SETTINGS, ServerSettings
from topospread.errors import ConfigError, StoreUnavailable, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from topospread.app.serving import Serving
    from topospread.config.spelling import Setting

_C = TypeVar("_C", bound="Callable[..., Any]")
_DEFAULTS: Final = ServerSettings()
_FILE: Final = re.compile(r"^(?:PEM|YAML|kubeconfig) file\b")


def settings_options(command: _C) -> _C:
    """One option for each setting of the server, with its unit and its default."""
    for setting in reversed(list(SETTINGS.values())):
        command = _option(setting)(command)
    return command


def _option(setting: Setting) -> Callable[[_C], _C]:
    default = getattr(_DEFAULTS, setting.name)
    about = setting.about
    # The name of a switch says what is on; given without --no- it is on.
    if isinstance(default, bool):
        flag = f"{setting.flag}/--no-{setting.flag.removeprefix('--')}"
        shown = "on" if default else "off"
        text = f"{about.help}  [default: {shown}]"
        return click.option(flag, setting.name, default=None, help=text)
    metavar = about.unit.upper().replace(" ", "-") or "VALUE"
    return click.option(
        setting.flag,
        setting.name,
        default=None,
        metavar=metavar,
        shell_complete=completing.files if _FILE.search(about.help) else None,
        help=_help(about.help, default),
    )


def _help(text: str, default: object) -> str:
    if isinstance(default, tuple):
        default = ",".join(default)
    return f"{text}  [default: {default}]" if default not in ("", None) and default != {} else text


@click.command("serve")
@settings_options
def command(**flags: object) -> int:
    """Serve decisions over gRPC, and metrics and health over HTTP, until SIGTERM or Ctrl-C.

    Each option is also a variable (--max-waiting is TOPOSPREAD_MAX_WAITING) and a key of a
    TopospreadConfiguration (maxWaiting). An option goes before a variable, which goes before the
    file. SIGHUP reads the file again.
    """
    # gRPC's own library would add lines in a form of its own, with what strangers sent in them as
    # they sent it: the server name of a handshake, at ERROR. It reads this when it is loaded; what
    # ends the process is written all the same.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from topospread.app.serve import serve

    _allow_files()
    allow_closed_stdout()
    try:
        serve(load_settings(flags, os.environ), _announce)
    except ConfigError as error:
        raise BadInput(*str(error).splitlines()) from error
    except StoreUnavailable as error:
        raise Unreachable(f"{error} (check --store, and that the store is up)") from error
    except Unavailable as error:
        raise Unreachable(str(error)) from error
    return DONE


def _allow_files() -> None:
    """Let as many files be open as the system allows: each connection is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _announce(server: Serving) -> None:
    """Say where it listens: a port of 0 is known only now. Other programs read these lines."""
    click.echo(f"topospread {server.version} listens on {server.address}")
    scheme = "https" if server.settings.tls else "http"
    if server.extender_address:
        click.echo(f"scheduler extender on {scheme}://{server.extender_address}/extender/v1")
    if server.expander_address:
        click.echo(f"cluster-autoscaler's expander on {server.expander_address}")
    if server.http_address:
        click.echo(f"metrics and health on {scheme}://{server.http_address}")
    click.echo(f"store {server.settings.shown()['store']}")
