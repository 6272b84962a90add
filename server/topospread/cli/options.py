"""Options that several verbs have: which server, which cluster, and how answers are printed.

They may stand before the verb or after it; after it wins.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from topospread.cli import complaints
from topospread_client.errors import TopospreadClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from topospread_client.client import Client
    from topospread_client.connection import Connection

DEFAULT_ADDRESS: Final = "127.0.0.1:7946"

_C = TypeVar("_C", bound="Callable[..., Any]")
_FILE: Final = click.Path(exists=True, dir_okay=False, readable=True)


@dataclass(slots=True)
class Options:
    """What was said of the server, with what holds where nothing was said."""

    address: str | None = None
    cluster: str = "default"
    timeout: float = 30.0
    tls: bool = False
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_server_name: str | None = None
    insecure: bool = False
    token_file: str | None = None
    output: str = "table"

    def connection(self) -> Connection:
        """How the server that was named, or else this machine's, is reached."""
        from topospread_client.connection import Connection, Tls

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
            # Somebody waits to be told that there is no server.
            retry_timeout=1.5,
        )

    @contextmanager
    def client(self) -> Iterator[Client]:
        """A client for the server; what its calls raise is said with the address."""
        from topospread_client.client import Client

        with (
            self.connected(),
            Client(self.connection(), cluster=self.cluster, timeout=self.timeout) as client,
        ):
            yield client

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Say what calls raise with the address that was called."""
        try:
            yield
        except TopospreadClientError as error:
            raise CallFailed(error, self.address or DEFAULT_ADDRESS) from error


class CallFailed(complaints.Unreachable):
    """A call did not succeed; said with the address that was called."""

    def __init__(self, error: TopospreadClientError, address: str) -> None:
        super().__init__("\n".join(complaints.explained(error, address)))
        self.code = complaints.code_of(error)


def _keep(context: click.Context, parameter: click.Parameter, value: object) -> None:
    options = context.ensure_object(Options)
    name = parameter.name
    if value is None or name is None:
        return
    # Both places read the environment: it must not win over what was said before the verb.
    said = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    if said or context.parent is None:
        setattr(options, name, value)


def _option(*names: str, **attributes: Any) -> Callable[[_C], _C]:
    return click.option(*names, expose_value=False, callback=_keep, default=None, **attributes)


_SERVER: Final = (
    _option("--address", envvar="TOPOSPREAD_ADDRESS", metavar="HOST:PORT", help="The server."),
    _option("--cluster", envvar="TOPOSPREAD_CLUSTER", metavar="NAME", help="The cluster."),
    _option(
        "--timeout", type=click.FloatRange(0, min_open=True), help="Seconds to wait for an answer."
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
_OUTPUTS: Final = click.Choice(["table", "json", "yaml", "name"])


def server_options(command: _C) -> _C:
    """The options that say which server is meant."""
    for option in reversed(_SERVER):
        command = option(command)
    return command


def output_option(command: _C) -> _C:
    """The option that says how answers are printed."""
    return _option("-o", "--output", type=_OUTPUTS, help="How to print the answer.")(command)


def judging_options(command: _C) -> _C:
    """The options of verbs that judge pods which people wrote: how strict, and how fresh."""
    for option in (
        click.option(
            "--fast",
            is_flag=True,
            help="Answer from the state at hand; otherwise every write before this call is seen.",
        ),
        click.option(
            "--no-validate",
            is_flag=True,
            help="Take constraints as they are, even those that an API server would refuse.",
        ),
    ):
        command = option(command)
    return command


pass_options: Final = click.make_pass_decorator(Options, ensure=True)
"""Hands the verb what was said before and after it."""

NAMES: Final = frozenset(each.name for each in fields(Options))
