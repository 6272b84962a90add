"""`topospread status`: the server and how it follows each cluster."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from topospread.cli import printing
from topospread.cli.complaints import DONE
from topospread.cli.options import Options, output_option, pass_options, server_options

if TYPE_CHECKING:
    from topospread_client.answers import ClusterStatus, ServerStatus


@click.command("status", short_help="Show the server and its clusters.")
@server_options
@output_option
@pass_options
def command(options: Options) -> int:
    """Show the server's version, store and configuration, and how it follows each cluster."""
    with options.client() as client:
        status = client.clusters()
    if options.output == "table":
        _print(status)
    elif options.output == "name":
        for cluster in status.clusters:
            printing.say(cluster.name)
    else:
        printing.structure(_structure(status), options.output)
    return DONE


def _print(status: ServerStatus) -> None:
    config = f"refused: {status.config_error}" if status.config_error else "in force"
    printing.fields(
        [
            ("server", status.server_version),
            ("store", status.store),
            ("up for", _age(status.started_at)),
            ("configuration", f"generation {status.config_generation}, {config}"),
            ("settings", _settings(status)),
            ("trace", status.trace_id),
        ]
    )
    if not status.clusters:
        printing.say("no cluster yet: `topospread apply -f PATH` makes one")
        return
    columns = ["CLUSTER", "STATE", "#NODES", "#PODS", "#WORKLOADS", "#GROUPS", "#LAG", "REVISION"]
    rows = [
        [
            cluster.name,
            _state(cluster),
            cluster.nodes,
            cluster.pods,
            cluster.workloads,
            cluster.groups,
            cluster.lag,
            cluster.revision,
        ]
        for cluster in status.clusters
    ]
    printing.table(columns, rows)


def _settings(status: ServerStatus) -> str:
    if not status.differing_settings:
        return status.settings_digest
    names = ", ".join(status.differing_settings)
    return f"{status.settings_digest}, another server of the store has others: {names}"


def _state(cluster: ClusterStatus) -> str:
    """Everything a person should know of it, worst first."""
    found = []
    if cluster.identity_changed:
        found.append("store changed, writes refused")
    if cluster.stale_for is not None:
        found.append(f"stale for {cluster.stale_for:.0f} s")
    if cluster.corrupt:
        found.append(f"{cluster.corrupt} unreadable")
    if not cluster.loaded:
        found.append("not loaded")
    return ", ".join(found) or "ok"


def _structure(status: ServerStatus) -> dict[str, object]:
    return {
        "serverVersion": status.server_version,
        "store": status.store,
        "startedAt": status.started_at.isoformat() if status.started_at else None,
        "configGeneration": status.config_generation,
        "configError": status.config_error,
        "settingsDigest": status.settings_digest,
        "differingSettings": list(status.differing_settings),
        "traceId": status.trace_id,
        "clusters": [
            {
                "name": cluster.name,
                "loaded": cluster.loaded,
                "revision": cluster.revision,
                "lag": cluster.lag,
                "staleFor": cluster.stale_for,
                "nodes": cluster.nodes,
                "pods": cluster.pods,
                "workloads": cluster.workloads,
                "reservations": cluster.reservations,
                "groups": cluster.groups,
                "labelSets": cluster.label_sets,
                "corrupt": cluster.corrupt,
                "identityChanged": cluster.identity_changed,
            }
            for cluster in status.clusters
        ],
    }


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
