"""Options for the server and cluster that are called, and for the form of output.

They may stand before the verb or after it; after it wins.
"""

from __future__ import annotations

import math
import os
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

import click
from click.core import ParameterSource
from typing_extensions import override

from topospread.cli import errors
from topospread_client import TopospreadClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from google.protobuf.message import Message

    from topospread_client import Client, Connection

DEFAULT_ADDRESS: Final = "127.0.0.1:7946"

_PATIENCE: Final = 1.5
"""Seconds of tries to reach a server: a person waits for the message that there is none."""

_RESTART: Final = 60.0
"""Seconds of tries to go on with a watch: servers are restarted meanwhile."""

_C = TypeVar("_C", bound="Callable[..., Any]")
_FILE: Final = click.Path(exists=True, dir_okay=False, readable=True)

MAX_NUMBER: Final = 2**31 - 1
"""Largest number that fields of requests hold."""

PATH: Final = click.Path(readable=False)
"""A path that shells complete and that the verb looks at itself."""


class ApiCaller(Protocol):
    """Something that answers requests; an empty cluster is the one of the command line."""

    def call(self, method: str, request: Message, *, timeout: float | None = None) -> Any:
        """Response message of a method, by its short name: ``EvaluatePod``.

        Raises:
            TopospreadClientError: the call failed.
        """
        ...

    def stream(
        self, method: str, request: Message, *, timeout: float | None = None
    ) -> Iterator[Any]:
        """Messages of a server stream; raises as `call` does."""
        ...


def pages(caller: ApiCaller, method: str, request: Any) -> Iterator[Any]:
    """Messages of all pages of a list, of which the request asks for the first."""
    while True:
        page = caller.call(method, request)
        yield page
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token


class StateSource(Protocol):
    """What `--from` names: a state that is loaded into this process."""

    def serve(self, options: ClientOptions) -> AbstractContextManager[ApiCaller]:
        """Load the state as that of the options' cluster; yields what answers calls."""
        ...


class VerbDefaults(NamedTuple):
    """What holds where kubectl runs the command and nothing else is given."""

    source: StateSource
    namespace: Callable[[ClientOptions], str | None]


class ImpliedNamespace(str):
    """A namespace that nobody typed: a name may be of another."""

    __slots__ = ()


@dataclass(slots=True)
class ClientOptions:
    """Values of the options that stand before or after the verb, and their defaults.

    Attributes:
        source: that is asked instead of a server; None calls a server.
        source_config: file with the scheduler's configuration that holds with `source`.
        source_kubeconfig: file that names the API server which `source` reads.
        kubernetes_version: by whose rules pods are judged; empty: the cluster's.
        kubectl: what holds where kubectl runs the command; None where it does not.
        kube_context: context of the kubeconfig, as kubectl's `--context` names it.
        kubectl_namespace: as kubectl's `-n` names it before the verb.
        sources: of each option that was given: its flag or its variable.
    """

    address: str | None = None
    cluster: str = "default"
    timeout: float = 30.0
    tls: bool | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_server_name: str | None = None
    insecure: bool = False
    token_file: str | None = None
    output: str = "table"
    wide: bool = False
    source: StateSource | None = None
    source_config: str = ""
    source_kubeconfig: str = ""
    kubernetes_version: str = ""
    kubectl: VerbDefaults | None = None
    kube_context: str = ""
    kubectl_namespace: str = ""
    sources: dict[str, str] = field(default_factory=dict)

    @property
    def cluster_is_named(self) -> bool:
        """Whether the cluster is named on the command line; it is no default then."""
        return self.sources.get("cluster") == "--cluster"

    def choose_source(self) -> None:
        """Choose between a server and a source, and check that the options are of what is chosen.

        With `--from` no server is called, and variables that name one are left aside.
        """
        if self.kubectl is not None:
            if self.source is None and not self._server_is_chosen():
                self.source = self.kubectl.source
            if self.source is None:
                return
        if self.source is not None:
            given = [self.sources.get(name, "") for name in _OF_A_SERVER]
            flags = ", ".join(flag for flag in given if flag.startswith("--"))
            if flags:
                raise click.UsageError(f"--from calls no server: leave out {flags}, or --from")
            return
        if self.source_config:
            raise click.UsageError("--config goes with --from: a server has one of its own")
        if self.source_kubeconfig:
            raise click.UsageError("--kubeconfig goes with --from kubeconfig")

    def _server_is_chosen(self) -> bool:
        """Whether a server is asked under kubectl.

        A cluster that is chosen by --context or --kubeconfig wins over a server of a variable.
        """
        address = self.sources.get("address", "")
        flag = (
            "--context" if self.kube_context else "--kubeconfig" if self.source_kubeconfig else ""
        )
        if flag and address.startswith("--"):
            raise click.UsageError(f"{flag} names an API server and {address} a server: give one")
        return bool(address) and not flag

    def imply_namespace(self, values: dict[str, Any]) -> None:
        """Fill in the namespace of a verb's values that kubectl would take where none is given."""
        asked = "namespace" in values and not values.get("all_namespaces")
        if self.kubectl is not None and asked and values["namespace"] is None:
            implied = self.kubectl.namespace(self)
            values["namespace"] = None if implied is None else ImpliedNamespace(implied)

    def connection(self) -> Connection:
        """Connection to the server that was named, or else to this machine's."""
        from topospread_client import Connection, Tls

        files = (self.tls_ca, self.tls_cert, self.tls_key, self.tls_server_name)
        encrypted = any(files) if self.tls is None else self.tls
        # A flag would show the token in `ps`, so there is none.
        token = None if self.token_file else os.environ.get("TOPOSPREAD_TOKEN") or None
        return Connection(
            self.address or DEFAULT_ADDRESS,
            Tls(*files) if encrypted else None,
            insecure=self.insecure,
            token=token,
            token_file=self.token_file,
            retry_timeout=_PATIENCE,
        )

    @contextmanager
    def server_client(self) -> Iterator[Client]:
        """Client for the server, where calls need more than an ApiCaller's methods.

        The errors of its calls name the address.
        """
        from topospread_client import Client

        connection = self.connection()
        with (
            naming_address(connection.address),
            Client(connection, cluster=self.cluster, timeout=self.timeout) as client,
        ):
            yield client

    @contextmanager
    def client(self) -> Iterator[ApiCaller]:
        """Caller of the server, or of the cluster that `--from` loads into this process.

        The errors of its calls name the address.
        """
        if self.source is None:
            with self.server_client() as client:
                yield client
            return
        with self.source.serve(self) as caller, naming_address(""):
            yield caller

    def watch(self, method: str, request: Message) -> Iterator[Any]:
        """Messages of a watch at the server, which goes on when its server is away for a while.

        The first message comes, or fails to, as soon as the answer of any other call.
        """
        from topospread_client import Client

        connection = replace(self.connection(), retry_timeout=_RESTART)
        # A stream is opened within the time-out of calls, and reopened within the other one.
        client = Client(connection, cluster=self.cluster, timeout=min(self.timeout, _PATIENCE))
        with naming_address(connection.address), client:
            yield from client.stream(method, request)


@contextmanager
def naming_address(address: str) -> Iterator[None]:
    """Turn errors of calls into one that names the address."""
    try:
        yield
    except TopospreadClientError as error:
        raise errors.CallsFailed([errors.FailedCall(error)], address) from error


class Seconds(click.FloatRange):
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
        options.sources[name] = parameter.opts[-1] if given else str(parameter.envvar)


def _option(*names: str, **attributes: Any) -> Callable[[_C], _C]:
    return click.option(*names, expose_value=False, callback=_store, default=None, **attributes)


_SERVER: Final[Sequence[tuple[str, str, Any, str]]] = (
    ("--address", "ADDRESS", "HOST:PORT", "The server."),
    ("--cluster", "CLUSTER", "NAME", "The cluster."),
    (
        "--timeout",
        "TIMEOUT",
        Seconds(0, min_open=True),
        "Seconds to wait for an answer; inf is no limit.",
    ),
    ("--tls/--no-tls", "TLS", bool, "Use TLS; any --tls-… option does so, too."),
    ("--tls-ca", "TLS_CA", _FILE, "PEM file with the CA of the server's certificate."),
    ("--tls-cert", "CLIENT_TLS_CERT", _FILE, "PEM file with this client's certificate."),
    ("--tls-key", "CLIENT_TLS_KEY", _FILE, "PEM file with the key of --tls-cert."),
    ("--tls-server-name", "TLS_SERVER_NAME", "NAME", "Name that the certificate must be for."),
    (
        "--token-file",
        "TOKEN_FILE",
        _FILE,
        "File with the token that says who calls; TOPOSPREAD_TOKEN may hold it instead.",
    ),
    ("--insecure", "CLIENT_INSECURE", bool, "Allow plain text to another machine."),
)
"""Flags, variables without their prefix, metavars or types, and what the options are.

TOPOSPREAD_TLS_CERT, …_TLS_KEY and …_INSECURE are settings of `serve`.
"""

_OF_A_SERVER: Final = [
    flag.partition("/")[0].removeprefix("--").replace("-", "_")
    for flag, *_ in _SERVER
    if flag not in ("--cluster", "--timeout")
]
"""Options that mean nothing where no server is called."""

_OUTPUTS: Final = click.Choice(["table", "wide", "json", "yaml", "name"])


def server_options(command: _C) -> _C:
    """Add the options for the server that is called."""
    for flag, variable, of, text in reversed(_SERVER):
        attributes: dict[str, Any] = {"metavar": of} if isinstance(of, str) else {"type": of}
        if of is bool:
            attributes = {"is_flag": True}
        variable = f"TOPOSPREAD_{variable}"
        command = _option(flag, envvar=variable, show_envvar=True, help=text, **attributes)(command)
    return command


def output_option(command: _C) -> _C:
    """Add the option for the form of output."""
    return _option("-o", "--output", type=_OUTPUTS, help="How to print the answer.")(command)


def output_forms_option(*forms: str) -> Callable[[_C], _C]:
    """Add the option for the form of output, for a verb with forms of its own."""
    return _option("-o", "--output", type=click.Choice(forms), help="How to print the answer.")


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


pass_given_options: Final = click.make_pass_decorator(ClientOptions, ensure=True)
"""Pass the options from before and after the verb to the verb's function."""


def pass_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Pass the options to the function of a verb that asks a server or a source."""

    def completed(options: ClientOptions, *args: Any, **values: Any) -> Any:
        options.choose_source()
        if values.get("all_namespaces") and values["namespace"]:
            raise click.UsageError("-A is all namespaces and -n is one: give one of them")
        options.imply_namespace(values)
        return function(options, *args, **values)

    return pass_given_options(update_wrapper(completed, function))


def server_verb(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a verb that asks a server or a source, and pass them to its function."""
    return server_options(output_option(pass_options(_with_version(function))))


def _with_version(function: Callable[..., Any]) -> Callable[..., Any]:
    """Ask a server for the rules of `--kubernetes-version`, where the verb's requests can."""

    def asking(options: ClientOptions, *args: Any, **values: Any) -> Any:
        # What is loaded by --from is of that version.
        if options.kubernetes_version and options.source is None:
            if "asked" not in values:
                raise click.UsageError(
                    "--kubernetes-version goes with --from: a server knows its clusters' versions"
                )
            values["asked"] = values["asked"].judged_as(options.kubernetes_version)
        return function(options, *args, **values)

    return update_wrapper(asking, function)
