"""`topospread sync`: feed a server's state from a cluster's API server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from topospread.cli import completing
from topospread.cli.complaints import DONE, BadInput, Unreachable
from topospread.cli.options import Options, pass_options, server_options
from topospread.cli.printing import allow_closed_stdout
from topospread.config import values
from topospread.errors import ConfigError

if TYPE_CHECKING:
    from topospread.app.syncing import Syncing


def _http(_: click.Context, __: click.Parameter, value: str) -> values.Address | None:
    try:
        return values.address_or_off().check(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} {error}") from error


@click.command("sync", short_help="Feed the state from a Kubernetes cluster.")
@click.option(
    "--kubeconfig",
    default="",
    metavar="FILE",
    shell_complete=completing.files,
    help="Names the API server.",
)
@click.option("--context", default="", metavar="NAME", help="Of the kubeconfig.")
@click.option(
    "--exclude-namespace",
    "excluded_namespaces",
    multiple=True,
    metavar="NAME",
    help="Feed nothing of this namespace. May be repeated.",
)
@click.option(
    "--lease",
    type=click.FloatRange(1, 3600),
    default=15.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a feeder that died is waited for before another one feeds.",
)
@click.option("--once", is_flag=True, help="List everything once, within --timeout, and end.")
@click.option(
    "--http",
    default="off",
    show_default=True,
    callback=_http,
    metavar="HOST:PORT",
    help="Where /metrics, /livez and /readyz are served.",
)
@server_options
@pass_options
def command(
    options: Options,
    kubeconfig: str,
    context: str,
    excluded_namespaces: tuple[str, ...],
    lease: float,
    once: bool,
    http: values.Address | None,
) -> int:
    """List and watch nodes, pods and workloads, and write them to a server's state.

    The API server is that of --kubeconfig, else of $KUBECONFIG or ~/.kube/config, else of the pod
    that this runs in. It runs until SIGTERM or Ctrl-C. `topospread serve --sync` does the same
    within a server.
    """
    from topospread.app.feeding import feeder_name, open_api_server
    from topospread.app.syncing import Syncing
    from topospread.cli.sync_sink import ClientSink
    from topospread.telemetry.logs import start_logging
    from topospread.transports.kubernetes.api_server import Access

    try:
        api = open_api_server(Access(kubeconfig, context))
        with options.client() as client:
            sink = ClientSink(client, feeder_name())
            syncing = Syncing(options.cluster, api, sink, lease, excluded_namespaces, http)
            output = start_logging("info", "auto")
            try:
                listed = syncing.run(_announce, once_within=options.timeout if once else None)
            finally:
                output.close()
    except ConfigError as error:
        raise BadInput(*str(error).splitlines()) from error
    if once and not listed:
        raise Unreachable(
            f"not everything was listed within {options.timeout:g} s: the lines above say why;"
            " give more with --timeout"
        )
    return DONE


def _announce(syncing: Syncing) -> None:
    allow_closed_stdout()
    click.echo(f"topospread feeds {syncing.cluster} from {syncing.api_address}")
    if syncing.http_address:
        click.echo(f"metrics and health on http://{syncing.http_address}")
