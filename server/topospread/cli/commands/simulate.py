"""`topospread simulate`: what would happen if pods were placed on the live state plus changes."""

from __future__ import annotations

from collections import Counter
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import click

from topospread.cli import documents, output, scenario_options
from topospread.cli.completeness import require_pods
from topospread.cli.errors import DONE, NO_NODE_FITS, raise_failed
from topospread.cli.kinds import named_pod, node_path
from topospread.cli.manifest_objects import pod_requests, warn_skipped
from topospread.cli.options import MAX_NUMBER, PATH, ClientOptions, server_verb
from topospread.cli.output import Column
from topospread.cli.placed_workloads import beside, each_once, held_back, to_place, without_made
from topospread.cli.pod_calls import raise_of_pods
from topospread.cli.render.explanation import suggestion_text
from topospread.cli.request_options import RequestOptions, input_options, request_options
from topospread.cli.state_pods import StatePods
from topospread.cli.state_source import files_of, from_option
from topospread.spread.settings import is_bound
from topospread.wording import counted
from topospread_client import InvalidRequest
from topospread_proto.v1 import scenario_pb2 as pb
from topospread_proto.v1.common_pb2 import CONSTRAINT_VALIDATION_IGNORE, OPTIMALITY_PROVEN
from topospread_proto.v1.explanation_pb2 import ROLLOUT_END_WAITS
from topospread_proto.v1.planner_service_pb2 import SimulateRequest, SimulateResponse

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from topospread.cli.manifest_objects import PodRequest

_COUNT: Final = click.IntRange(0, MAX_NUMBER)

_ROWS: Final = 20
"""Number of nodes that a table names; JSON has all."""


@click.command("simulate", short_help="What would happen: place pods on the state plus changes.")
@click.argument("stored", nargs=-1, metavar="[NAME]...")
@input_options(required=False)
@click.option(
    "--replicas",
    type=_COUNT,
    help="Of each pod or workload.  [what it says or has; a pod: 1]",
)
@click.option(
    "--in-addition",
    is_flag=True,
    help="All replicas are more than what is in the state.  [only those that are missing there]",
)
@click.option(
    "--add-nodes",
    multiple=True,
    metavar="PATH[=N]",
    type=PATH,
    help="N nodes like each Node of this file join.  [1; with --fewest-nodes: as many as it takes]",
)
@click.option("--zones", metavar="NAME,…", help="The nodes that join are in these zones, in turn.")
@click.option(
    "--drain",
    "drained",
    multiple=True,
    metavar="NODE[=tainted]",
    help="This node is gone; with =tainted it is still there, with the autoscaler's NoSchedule "
    "taint.",
)
@click.option(
    "--reschedule", is_flag=True, help="Place the pods of drained nodes anew, before all others."
)
@click.option(
    "--add-pods",
    multiple=True,
    metavar="PATH",
    type=PATH,
    help="These pods run, each on its spec.nodeName.",
)
@click.option("--delete-pod", "deleted", multiple=True, metavar="NAME", help="This pod is gone.")
@click.option(
    "--constraint",
    "constraints",
    multiple=True,
    metavar="KEY:NAME=VALUE,…",
    help="Other values for the constraints with this key: maxSkew, minDomains, whenUnsatisfiable, "
    "nodeAffinityPolicy, nodeTaintsPolicy.",
)
@click.option(
    "--fewest-nodes", is_flag=True, help="Find the fewest of --add-nodes that make all fit."
)
@click.option("--seed", default="", metavar="TEXT", help="Orders equal nodes, as for `place`.")
@request_options(
    "settings",
    "validation",
    "consistency",
    "fit",
    fit_help="What to ask beside spreading.  [all]",
)
@from_option
@server_verb
def command(
    options: ClientOptions,
    stored: Sequence[str],
    paths: Sequence[str],
    recursive: bool,
    namespace: str | None,
    replicas: int | None,
    in_addition: bool,
    add_nodes: Sequence[str],
    zones: str | None,
    drained: Sequence[str],
    reschedule: bool,
    add_pods: Sequence[str],
    deleted: Sequence[str],
    constraints: Sequence[str],
    fewest_nodes: bool,
    seed: str,
    asked: RequestOptions,
) -> int:
    """Place pods one by one, as `place` would, on the live state plus changes. Nothing is written.

    NAME is that of a pod, or of a workload, as `explain` takes it. Files may hold pods, and
    workloads for the pods they would make. Of a workload that is in the state already those of its
    pods that wait are placed, and those that it lacks; with --in-addition all of its replicas are
    more. The exit code is 1 when a pod stays pending, or a rollout waits.
    """
    validation = asked.validation
    given: list[PodRequest] = []
    if paths or not (stored or reschedule):
        given = pod_requests(
            [], paths, recursive=recursive, namespace=namespace, validation=validation
        )
    scenario = pb.Scenario(
        changes=pb.SupposedChanges(
            add_node_groups=scenario_options.node_groups(
                add_nodes, zones, validation, fewest=fewest_nodes
            ),
            drain_nodes=[scenario_options.drained_node(text) for text in drained],
            add_pods=scenario_options.running_pods(add_pods, validation, namespace),
            delete_pods=[named_pod(text, namespace) for text in deleted],
            constraint_changes=scenario_options.constraint_changes(constraints),
        ),
        seed=seed,
        # Pods of the state are taken as they are.
        validation=max((each.validation for each in given), default=CONSTRAINT_VALIDATION_IGNORE),
    )
    with options.client() as client:
        state = StatePods(client, asked.consistency, files_of(options))
        named, failed = state.placeable(stored, namespace)
        raise_failed(failed)
        requests, again = each_once([*named, *given])
        warn_skipped(again, "given more than once: the last counts")
        requests, made = without_made(requests)
        warn_skipped(made, "another object of the input makes them")
        request = SimulateRequest(
            pods=[to_place(each, replicas, in_addition=in_addition) for each in requests],
            scenario=asked.fill(scenario),
            find_fewest_nodes=fewest_nodes,
            reschedule=reschedule,
        )
        if not (requests or scenario.changes.add_pods):
            require_pods(client)
        try:
            found = client.call("Simulate", asked.fill(request))
        except InvalidRequest as error:
            raise_of_pods(error, requests)
        if not in_addition:
            found.warnings.extend(beside(requests, found, state))
        found.warnings.extend(held_back(requests, found))
    names = [node_path(each.node) for each in found.placements]
    documents.present(
        options.output,
        "Simulation",
        lambda: _print(found, [each.label for each in requests]),
        names + [output.NONE] * found.pending_pod_count,
        cluster=options.cluster,
        pods=[each.subject for each in requests],
        answer=found,
    )
    waits = any(map(_waits, found.workloads))
    return NO_NODE_FITS if found.pending_pod_count or waits else DONE


def _waits(workload: pb.PlacedWorkload) -> bool:
    """Whether its rollout waits, or does so in some of the courses drawn: as lint warns of it."""
    rollout = workload.rollout
    return rollout.end == ROLLOUT_END_WAITS or rollout.waiting_course_count > 0


def _rollout_of(workload: pb.PlacedWorkload) -> str:
    return f"the rollout of {workload.workload.kind} {workload.namespace}/{workload.workload.name}"


def _unknown(workloads: Iterable[pb.PlacedWorkload]) -> list[str]:
    """Rollouts that were asked for, and of which none knows the end."""
    asked = (each for each in workloads if each.HasField("rollout"))
    return [_rollout_of(each) for each in asked if not each.rollout.end]


def _print(found: SimulateResponse, labels: Sequence[str]) -> None:
    rescheduled = found.rescheduled_pod_count
    titles = [f"{counted(rescheduled, 'pod')} of drained nodes"] if rescheduled else []
    click.secho(", ".join([*titles, *labels]), bold=True)
    for workload in found.workloads:
        output.echo(workload.text)
    _print_nodes(found)
    for group in found.pending_pods:
        click.echo()
        output.echo(f"pending: {_first_and_last(group)}")
        output.echo(f"  {group.message or ', '.join(group.verdict.reasons)}")
        for suggestion in group.explanation.suggestions:
            output.echo(f"  the first would fit with {suggestion_text(suggestion)}")
    if found.spread_changes:
        click.echo()
        output.print_items(_SPREAD_CHANGES, found.spread_changes)
    click.echo()
    placed, pending = found.placed_pod_count, found.pending_pod_count
    total = placed + pending
    most = "at most " if placed and is_bound(found.not_modelled) else ""
    output.fields(
        [
            (
                "placed",
                f"{most}{placed} of {total}" if total else "nothing to place",
            ),
            ("pending", pending or ""),
            ("waits", ", ".join(map(_rollout_of, filter(_waits, found.workloads)))),
            ("joined", _by_group(found.joined)),
            ("evicted", found.evicted_pod_count or ""),
            ("fewest nodes", _fewest_text(found)),
            ("it takes", "; ".join(found.advice)),
            ("not looked at", ", ".join([*found.not_modelled, *_unknown(found.workloads)])),
            ("revision", found.meta.revision),
            ("trace", documents.trace_id(found)),
        ]
    )
    for warning in found.warnings:
        output.warn(f"warning: {warning}")


def _print_nodes(found: SimulateResponse) -> None:
    counts = Counter((p.node, p.node_group) for p in found.placements)
    shown = counts.most_common(_ROWS)
    if shown:
        output.table(("NODE", "JOINS FROM", "#PODS"), [(*node, n) for node, n in shown])
    if len(counts) > _ROWS:
        output.echo(f"… and {len(counts) - _ROWS} more (-o json has all)")


def _first_and_last(pending: pb.PendingPods) -> str:
    first, last = pending.pods[0].name, pending.pods[-1].name
    return f"{pending.pod_count} ({f'{first} … {last}' if pending.pod_count > 1 else first})"


def _domains(change: pb.SpreadChange) -> str:
    domains = []
    for each in change.domains[:6]:
        before = each.pod_count_before if each.HasField("pod_count_before") else "-"
        after = each.pod_count_after if each.HasField("pod_count_after") else "-"
        domains.append(f"{each.value}: {_arrow(before, after)}")
    if change.domain_count_after > len(domains):
        domains.append("…")
    return ", ".join(domains)


def _arrow(before: object, after: object) -> str:
    return f"{after}" if before == after else f"{before} → {after}"


_SPREAD_CHANGES: Final = (
    Column("TOPOLOGY KEY", attrgetter("constraint.topology_key")),
    Column("UNSATISFIABLE", attrgetter("constraint.when_unsatisfiable")),
    Column("#MAX SKEW", attrgetter("constraint.max_skew")),
    Column("#SKEW", lambda change: _arrow(change.skew_before, change.skew_after)),
    Column(
        "#DOMAINS", lambda change: _arrow(change.domain_count_before, change.domain_count_after)
    ),
    Column("PODS BY DOMAIN", _domains),
)


def _fewest_text(found: SimulateResponse) -> str:
    if not found.HasField("fewest_nodes"):
        return ""
    nodes, proven = _by_group(found.joined), found.fewest_nodes.optimality == OPTIMALITY_PROVEN
    if not found.fewest_nodes.all_fit:
        return f"no number up to {nodes} {'makes all fit' if proven else 'was found'}"
    count = sum(group.node_count for group in found.joined)
    if not count:
        return "none, all fit without"
    more = counted(count, "more node")
    return f"{more} ({nodes}; {'proven' if proven else 'best found'})"


def _by_group(joined: Iterable[pb.JoinedNodes]) -> str:
    return ", ".join(
        f"{group.node_count} of {group.node_group}" for group in joined if group.node_count
    )
