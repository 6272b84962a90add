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
from topospread_client import TopospreadClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from topospread_client import Client, Connection, Consistency

FULL: Final = "full"
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
            # Somebody waits to be told that there is no server.
            retry_timeout=1.5,
        )

    @contextmanager
    def client(self) -> Iterator[Client]:
        """A client for the server; what its calls raise is said with the address."""
        from topospread_client import Client

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
            failed = complaints.Failed(error)
            raise complaints.CallsFailed([failed], self.address or DEFAULT_ADDRESS) from error


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


def last_output(arguments: Sequence[str]) -> str | None:
    """The last form of output that a command line asks for, though all of it cannot be read."""
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


def judging_options(command: _C) -> _C:
    """The options of verbs that judge pods which people wrote: how strict, and how fresh."""
    command = click.option(
        "--consistency",
        "freshness",
        default=FULL,
        show_default=True,
        metavar="full|minimize-latency|REVISION",
        help="See every write before this call; answer from the state at hand; or wait for this "
        "revision.",
    )(command)
    return validation_option(command)


def validation_option(command: _C) -> _C:
    """The option of verbs that take pods which people wrote: how strict."""
    return click.option(
        "--no-validate",
        is_flag=True,
        help="Take constraints as they are, even those that an API server would refuse.",
    )(command)


def consistency_of(freshness: str) -> Consistency | None:
    """What `--consistency` says; None for the state at hand.

    Raises:
        BadInput: it says nothing.
    """
    from topospread_client import Consistency

    if not freshness:
        raise complaints.BadInput(
            "--consistency is empty: write full, minimize-latency, or the revision that an answer"
            " told"
        )
    if freshness == FULL:
        return Consistency(fully_consistent=True)
    if freshness == "minimize-latency":
        return None
    return Consistency(at_least_as_fresh=freshness)


pass_options: Final = click.make_pass_decorator(Options, ensure=True)
"""Hands the verb what was said before and after it."""

NAMES: Final = frozenset(each.name for each in fields(Options))
