"""`topospread status`: show a server and how it follows each cluster."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from topospread.cli import documents, output
from topospread.cli.errors import DONE, BadInput
from topospread.cli.options import (
    DEFAULT_ADDRESS,
    ClientOptions,
    output_option,
    pass_options,
    server_options,
)
from topospread_client import Consistency, NotFound, TopospreadClientError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread_client import Client, Cluster, GetServerInfoResponse

_PATIENCE: Final = 5.0
"""Seconds to wait for a cluster that the server loads."""

_NAMED: Final = 10
"""Clusters that are named where another is not there."""

_UNKNOWN: Final = "-----"
"""What is shown for the counts of a cluster that is not loaded."""


@click.command("status", short_help="Show the server and its clusters.")
@server_options
@output_option
@pass_options
def command(options: ClientOptions) -> int:
    """Show the server's version, store and configuration, and how it follows each cluster.

    With --cluster, that cluster alone. It, or else `default`, is loaded where nobody has asked
    about it yet; others are shown as they are.
    """
    with options.client() as client:
        info = client.get_server_info()
        named = _loaded(client, options)
        clusters = [named] if named and options.cluster_is_named else _clusters(client, named)
    if options.output == "table":
        _print(info, clusters, options)
    elif options.output == "name":
        for cluster in clusters:
            output.echo(cluster.name)
    else:
        documents.show(
            "ServerStatus",
            options.output,
            address=options.address or DEFAULT_ADDRESS,
            answer=info,
            clusters=clusters,
        )
    return DONE


def _loaded(client: Client, options: ClientOptions) -> Cluster | None:
    """The cluster of the command line, loaded if that is possible soon.

    None where it cannot be told and was not asked for by name.

    Raises:
        BadInput: there is no cluster of that name.
    """
    newest = Consistency(fully_consistent=True)
    try:
        return client.get_cluster(
            consistency=newest, timeout=min(_PATIENCE, options.timeout)
        ).cluster
    except TopospreadClientError:
        pass  # how it stands says what is wrong
    try:
        return client.get_cluster().cluster
    except TopospreadClientError as error:
        if not options.cluster_is_named:
            return None
        if isinstance(error, NotFound):
            raise BadInput(_not_there(client, options.cluster)) from error
        raise


def _not_there(client: Client, cluster: str) -> str:
    page = client.list_clusters_page(page_size=_NAMED + 1)
    names = [each.name for each in page.clusters]
    there = ", ".join(names[:_NAMED]) + ", …" * (len(names) > _NAMED)
    return f"no cluster {cluster}: " + (f"there are {there}" if names else "there is none yet")


def _clusters(client: Client, loaded: Cluster | None) -> list[Cluster]:
    every = client.list_clusters()
    return [loaded if loaded and each.name == loaded.name else each for each in every]


def _print(
    info: GetServerInfoResponse, clusters: Sequence[Cluster], options: ClientOptions
) -> None:
    config = f"refused: {info.config_error}" if info.config_error else "in force"
    output.fields(
        [
            ("address", options.address or DEFAULT_ADDRESS),
            ("server", info.version),
            ("store", info.store),
            ("up for", _age(info.start_time)),
            ("configuration", f"generation {info.config_generation}, {config}"),
            ("settings", info.settings_digest),
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
            *(_counts(cluster) if cluster.loaded else _UNKNOWN),
            cluster.revision,
        ]
        for cluster in clusters
    ]
    output.table(columns, rows)
    for cluster in clusters:
        if cluster.identity_changed:
            accept = f"topospread store accept --cluster {cluster.name} --store-identity"
            output.echo(f"to accept the store of {cluster.name}: {accept} {cluster.store_identity}")


def _counts(cluster: Cluster) -> Sequence[int]:
    return (
        cluster.node_count,
        cluster.pod_count,
        cluster.workload_count,
        cluster.group_count,
        cluster.lag,
    )


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
        found.append("not loaded until it is asked about")
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
