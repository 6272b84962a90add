"""Options for the server and cluster that are called, and for the form of output.

They may stand before the verb or after it; after it wins.
"""

from __future__ import annotations

import math
import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource
from typing_extensions import override

from topospread.cli import errors
from topospread_client import TopospreadClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from click.shell_completion import CompletionItem

    from topospread_client import Client, Connection

DEFAULT_ADDRESS: Final = "127.0.0.1:7946"

DIAGNOSIS_TIME: Final = 2.0
"""Seconds to look why a call reached no server, beside its own time."""

_C = TypeVar("_C", bound="Callable[..., Any]")
_FILE: Final = click.Path(exists=True, dir_okay=False, readable=True)


@dataclass(slots=True)
class ClientOptions:
    """Values of the options that stand before or after the verb, and their defaults.

    Attributes:
        cluster_is_named: on the command line; it is no default then.
    """

    address: str | None = None
    cluster: str = "default"
    cluster_is_named: bool = False
    timeout: float = 30.0
    tls: bool = False
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_server_name: str | None = None
    insecure: bool = False
    token_file: str | None = None
    output: str = "table"
    wide: bool = False

    def connection(self) -> Connection:
        """Connection to the server that was named, or else to this machine's."""
        from topospread_client import Connection, Tls

        tls = None
        if self.tls or self.tls_ca or self.tls_cert or self.tls_key or self.tls_server_name:
            tls = Tls(self.tls_ca, self.tls_cert, self.tls_key, self.tls_server_name)
        # A flag would show the token in `ps`, so there is none.
        token = None if self.token_file else os.environ.get("TOPOSPREAD_TOKEN") or None
        return Connection(
            self.address or DEFAULT_ADDRESS,
            tls,
            insecure=self.insecure,
            token=token,
            token_file=self.token_file,
            # A person waits for the message that there is no server.
            retry_timeout=1.5,
        )

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Client for the server; the errors of its calls name the address and the cause."""
        from topospread_client import Client

        connection = self.connection()
        with (
            self.naming_address(connection),
            Client(connection, cluster=self.cluster, timeout=self.timeout) as client,
        ):
            yield client

    @contextmanager
    def naming_address(self, connection: Connection) -> Iterator[None]:
        """Turn errors of calls into one that names the address, and why it was not reached."""
        try:
            yield
        except TopospreadClientError as error:
            cause = errors.diagnosed(error, connection, min(self.timeout, DIAGNOSIS_TIME))
            raise errors.CallsFailed([errors.FailedCall(cause)], connection.address) from error


class _Seconds(click.FloatRange):
    """More than 0; NaN is not, though no comparison finds it."""

    @override
    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        seconds: float = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value!r} is no number of seconds.", param, ctx)
        return seconds


def _store(context: click.Context, parameter: click.Parameter, value: object) -> None:
    options = context.ensure_object(ClientOptions)
    name = parameter.name
    if value is None or name is None:
        return
    # Both places read the environment: it must not win over an option before the verb.
    given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    if given or context.parent is None:
        if name == "output":
            # A wide table is a table to all verbs, with more columns where there are any.
            options.wide, value = value == "wide", "table" if value == "wide" else value
        setattr(options, name, value)
        options.cluster_is_named |= given and name == "cluster"


def _option(*names: str, **attributes: Any) -> Callable[[_C], _C]:
    return click.option(*names, expose_value=False, callback=_store, default=None, **attributes)


_SERVER: Final = (
    _option("--address", envvar="TOPOSPREAD_ADDRESS", metavar="HOST:PORT", help="The server."),
    _option("--cluster", envvar="TOPOSPREAD_CLUSTER", metavar="NAME", help="The cluster."),
    _option(
        "--timeout",
        type=_Seconds(0, min_open=True),
        help="Seconds to wait for an answer; inf is no limit.",
    ),
    _option("--tls/--no-tls", is_flag=True, help="Use TLS; any --tls-… option does so, too."),
    _option("--tls-ca", type=_FILE, help="PEM file with the CA of the server's certificate."),
    _option("--tls-cert", type=_FILE, help="PEM file with this client's certificate."),
    _option("--tls-key", type=_FILE, help="PEM file with the key of --tls-cert."),
    _option("--tls-server-name", metavar="NAME", help="Name that the certificate must be for."),
    _option(
        "--token-file",
        envvar="TOPOSPREAD_TOKEN_FILE",
        type=_FILE,
        help="File with the token that says who calls; TOPOSPREAD_TOKEN may hold it instead.",
    ),
    _option("--insecure", is_flag=True, help="Allow plain text to another machine."),
)
_OUTPUTS: Final = click.Choice(["table", "wide", "json", "yaml", "name"])


def server_options(command: _C) -> _C:
    """Add the options for the server that is called."""
    for option in reversed(_SERVER):
        command = option(command)
    return command


def output_option(command: _C) -> _C:
    """Add the option for the form of output."""
    return _option("-o", "--output", type=_OUTPUTS, help="How to print the answer.")(command)


def last_output(arguments: Sequence[str]) -> str | None:
    """Last value of `-o` on a command line that may not parse; None without one."""
    asked = None
    words = iter(arguments)
    for word in words:
        if word == "--":
            break
        if word in {"-o", "--output"}:
            asked = next(words, None)
        elif word.startswith("--output="):
            asked = word.removeprefix("--output=")
        elif word.startswith("-o"):
            asked = word.removeprefix("-o")
    return asked


def complete_files(
    context: click.Context, parameter: click.Parameter, typed: str
) -> list[CompletionItem]:
    """Completion of a path, which is left to the shell."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(typed, type="file")]


pass_options: Final = click.make_pass_decorator(ClientOptions, ensure=True)
"""Pass the options from before and after the verb to its function."""
