"""`topospread status`: show a server and how it follows each cluster."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, cast

import click

from topospread.cli import documents, output
from topospread.cli.errors import DONE, BadInput
from topospread.cli.options import DEFAULT_ADDRESS, ClientOptions, pages, server_verb
from topospread.cli.output import Column
from topospread_client import NotFound, TopospreadClientError
from topospread_proto.v1 import cluster_state_service_pb2 as pb
from topospread_proto.v1.common_pb2 import Consistency
from topospread_proto.v1.server_service_pb2 import GetServerInfoRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.cli.options import ApiCaller
    from topospread_proto.v1.cluster_state_service_pb2 import Cluster
    from topospread_proto.v1.server_service_pb2 import GetServerInfoResponse

_PATIENCE: Final = 5.0
"""Seconds to wait for a cluster that the server loads."""

_NAMED: Final = 10
"""Clusters that are named where another is not there."""


@click.command("status", short_help="Show the server and its clusters.")
@server_verb
def command(options: ClientOptions) -> int:
    """Show the server's version, store and configuration, and how it follows each cluster.

    With --cluster, that cluster alone. It, or else `default`, is loaded where nobody has asked
    about it yet; others are shown as they are.
    """
    with options.client() as client:
        info = client.call("GetServerInfo", GetServerInfoRequest())
        named = _loaded(client, options)
        clusters = [named] if named and options.cluster_is_named else _clusters(client, named)
    documents.present(
        options.output,
        "ServerStatus",
        lambda: _print(info, clusters, options),
        (cluster.name for cluster in clusters),
        address=options.address or DEFAULT_ADDRESS,
        answer=info,
        clusters=clusters,
    )
    return DONE


def _loaded(client: ApiCaller, options: ClientOptions) -> Cluster | None:
    """The cluster of the command line; None where it cannot be told and was not asked for."""
    newest = pb.GetClusterRequest(consistency=Consistency(fully_consistent=True))
    patience = min(_PATIENCE, options.timeout)
    try:
        return cast("Cluster", client.call("GetCluster", newest, timeout=patience).cluster)
    except TopospreadClientError:
        pass  # how it stands says what is wrong
    try:
        return cast("Cluster", client.call("GetCluster", pb.GetClusterRequest()).cluster)
    except TopospreadClientError as error:
        if not options.cluster_is_named:
            return None
        if isinstance(error, NotFound):
            raise BadInput(_not_there(client, options.cluster)) from error
        raise


def _not_there(client: ApiCaller, cluster: str) -> str:
    page = client.call("ListClusters", pb.ListClustersRequest(page_size=_NAMED + 1))
    names = [each.name for each in page.clusters]
    there = ", ".join(names[:_NAMED]) + ", …" * (len(names) > _NAMED)
    return f"no cluster {cluster}: " + (f"there are {there}" if names else "there is none yet")


def _clusters(client: ApiCaller, loaded: Cluster | None) -> list[Cluster]:
    listed = pages(client, "ListClusters", pb.ListClustersRequest())
    every = (each for page in listed for each in page.clusters)
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
            ("up for", _age(info) if info.HasField("start_time") else ""),
            ("configuration", f"generation {info.config_generation}, {config}"),
            ("settings", info.settings_digest),
            ("trace", documents.trace_id(info)),
        ]
    )
    if not clusters:
        output.echo("no cluster yet: `topospread apply -f PATH` makes one")
        return
    output.print_items(_COLUMNS, clusters)
    for cluster in clusters:
        if cluster.corrupt_objects:
            output.echo(f"left out of {cluster.name}: {_left_out(cluster)}")
        if cluster.identity_changed:
            output.echo(
                f"the store has another history of {cluster.name}, or none: list every kind into it"
                " (a sync does, or `topospread apply --replace`), or restart the servers if it is"
                " meant to be as it is"
            )


def _left_out(cluster: Cluster) -> str:
    """The objects that cannot be read, as far as they are named."""
    named = [
        f"{each.kind} {f'{each.namespace}/{each.name}' if each.namespace else each.name}"
        for each in cluster.corrupt_objects
    ]
    more = cluster.corrupt_count - len(named)
    text = ", ".join(named) + (f" and {more} more" if more > 0 else "")
    return f"{text}: a server's log says why"


def _state(cluster: Cluster) -> str:
    found = []
    if cluster.identity_changed:
        found.append("store changed, writes refused")
    if cluster.HasField("store_unreachable_for"):
        lost = cluster.store_unreachable_for.ToTimedelta().total_seconds()
        found.append(f"store unreachable for {lost:.0f} s")
    if cluster.corrupt_count:
        found.append(f"{cluster.corrupt_count} unreadable")
    if not cluster.loaded:
        found.append("not loaded until it is asked about")
    return ", ".join(found) or "ok"


def _version(cluster: Cluster) -> str:
    """The version that the cluster reports, and by whose rules it is judged where these differ."""
    judged, reported = cluster.kubernetes_version, cluster.reported_kubernetes_version
    shown = reported or "-"
    return f"{shown} (as {judged})" if judged not in ("", reported) else shown


def _count(heading: str, name: str) -> Column:
    return Column(heading, lambda each: getattr(each, name) if each.loaded else "-")


_COLUMNS: Final = (
    Column("CLUSTER", lambda each: each.name),
    Column("STATE", _state),
    Column("KUBERNETES", _version),
    Column("SYNCED BY", lambda each: each.sync_lease.holder_identity or "-"),
    _count("#NODES", "node_count"),
    _count("#PODS", "pod_count"),
    _count("#WORKLOADS", "workload_count"),
    _count("#GROUPS", "group_count"),
    _count("#LAG", "lag"),
    Column("REVISION", lambda each: each.revision),
)


def _age(info: GetServerInfoResponse) -> str:
    since = info.start_time.ToDatetime(tzinfo=UTC)
    seconds = max(0, int((datetime.now(UTC) - since).total_seconds()))
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, seconds = divmod(rest, 60)
    parts = ((days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s"))
    shown = [f"{count} {unit}" for count, unit in parts if count]
    return " ".join(shown[:2]) or "0 s"
