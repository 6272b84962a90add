"""`topospread status`: show a server and how it follows each cluster."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from topospread.cli import documents, output
from topospread.cli.errors import DONE
from topospread.cli.options import ClientOptions, output_option, pass_options, server_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread_client import Cluster, GetServerInfoResponse


@click.command("status", short_help="Show the server and its clusters.")
@server_options
@output_option
@pass_options
def command(options: ClientOptions) -> int:
    """Show the server's version, store and configuration, and how it follows each cluster."""
    with options.client() as client:
        info = client.get_server_info()
        clusters = list(client.list_clusters())
    if options.output == "table":
        _print(info, clusters)
    elif options.output == "name":
        for cluster in clusters:
            output.echo(cluster.name)
    else:
        documents.show("ServerStatus", options.output, answer=info, clusters=clusters)
    return DONE


def _print(info: GetServerInfoResponse, clusters: Sequence[Cluster]) -> None:
    config = f"refused: {info.config_error}" if info.config_error else "in force"
    output.fields(
        [
            ("server", info.version),
            ("store", info.store),
            ("up for", _age(info.start_time)),
            ("configuration", f"generation {info.config_generation}, {config}"),
            ("settings", _settings(info)),
            ("trace", info.trace_id),
        ]
    )
    if not clusters:
        output.echo("no cluster yet: `topospread apply -f PATH` makes one")
        return
    columns = ["CLUSTER", "STATE", "#NODES", "#PODS", "#WORKLOADS", "#GROUPS", "#LAG", "REVISION"]
    rows = [
        [
            cluster.name,
            _state(cluster),
            cluster.node_count,
            cluster.pod_count,
            cluster.workload_count,
            cluster.group_count,
            cluster.lag,
            cluster.revision,
        ]
        for cluster in clusters
    ]
    output.table(columns, rows)
    for cluster in clusters:
        if cluster.identity_changed:
            accept = f"topospread store accept --cluster {cluster.name} --store-identity"
            output.echo(f"to accept the store of {cluster.name}: {accept} {cluster.store_identity}")


def _settings(info: GetServerInfoResponse) -> str:
    if not info.differing_settings:
        return info.settings_digest
    names = ", ".join(info.differing_settings)
    return f"{info.settings_digest}, another server of the store has others: {names}"


def _state(cluster: Cluster) -> str:
    """Problems of a cluster, worst first, or ``ok``."""
    found = []
    if cluster.identity_changed:
        found.append("store changed, writes refused")
    if cluster.store_unreachable_for is not None:
        found.append(f"store unreachable for {cluster.store_unreachable_for:.0f} s")
    if cluster.corrupt_count:
        found.append(f"{cluster.corrupt_count} unreadable")
    if not cluster.loaded:
        found.append("not loaded")
    return ", ".join(found) or "ok"


def _age(since: datetime | None) -> str:
    if since is None:
        return ""
    seconds = max(0, int((datetime.now(UTC) - since).total_seconds()))
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, seconds = divmod(rest, 60)
    parts = ((days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s"))
    shown = [f"{count} {unit}" for count, unit in parts if count]
    return " ".join(shown[:2]) or "0 s"
