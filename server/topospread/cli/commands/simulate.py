"""`topospread simulate`: what would happen if pods were placed on the live state plus changes."""

from __future__ import annotations

import re
from collections import Counter
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import click

from topospread.cli import documents, manifest_files, output
from topospread.cli.completeness import require_pods
from topospread.cli.errors import DONE, NO_NODE_FITS, BadInput
from topospread.cli.kinds import OWNERS, POD, ObjectName, named_pod, node_name, node_path
from topospread.cli.manifest_objects import manifest_pods, pod_requests, storable_objects
from topospread.cli.options import MAX_NUMBER, PATH, ClientOptions, server_verb
from topospread.cli.output import Column
from topospread.cli.render.explanation import suggestion_text
from topospread.cli.request_options import RequestOptions, input_options, request_options
from topospread.cli.state_pods import StatePods
from topospread.cli.state_source import from_option
from topospread.spread.settings import is_bound
from topospread.wording import counted
from topospread_proto.v1 import scenario_pb2 as pb
from topospread_proto.v1.common_pb2 import (
    CONSTRAINT_VALIDATION_IGNORE,
    OPTIMALITY_PROVEN,
    PodOnNode,
    PodSource,
)
from topospread_proto.v1.planner_service_pb2 import SimulateRequest, SimulateResponse

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from topospread.cli.manifest_objects import FieldValidation, PodRequest

_COUNT: Final = click.IntRange(0, MAX_NUMBER)

_NUMBER: Final = re.compile(r"-?[0-9]{1,9}")

_ROWS: Final = 20
"""Number of nodes that a table names; JSON has all."""

_MAKERS: Final = 3
"""Controllers that a warning names."""

_ZONE: Final = "topology.kubernetes.io/zone"

_VALUES: Final = {each.json_name: each for each in pb.ConstraintValues.DESCRIPTOR.fields}
"""Fields of constraints that `--constraint` changes, by the names that are typed."""


@click.command("simulate", short_help="What would happen: place pods on the state plus changes.")
@click.argument("stored", nargs=-1, metavar="[NAME]...")
@input_options(required=False)
@click.option(
    "--replicas", type=_COUNT, help="Of each pod in files.  [what a workload says; a pod: 1]"
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

    Files may hold pods, and workloads for the pods they would make. Of a workload that is in the
    state already those of its pods that wait are placed, and those that it lacks; with
    --in-addition all of its replicas are more. The exit code is 1 when a pod stays pending.
    """
    validation = asked.validation
    requests: list[PodRequest] = []
    if stored or paths or not reschedule:
        requests = pod_requests(
            stored, paths, recursive=recursive, namespace=namespace, validation=validation
        )
    scenario = pb.Scenario(
        changes=pb.SupposedChanges(
            add_node_groups=_node_groups(add_nodes, zones, validation, fewest=fewest_nodes),
            drain_nodes=[_drained(text) for text in drained],
            add_pods=_running_pods(add_pods, validation, namespace),
            delete_pods=[named_pod(text, namespace) for text in deleted],
            constraint_changes=_constraint_changes(constraints),
        ),
        seed=seed,
        # Pods of the state are taken as they are.
        validation=max(
            (each.validation for each in requests), default=CONSTRAINT_VALIDATION_IGNORE
        ),
    )
    request = SimulateRequest(
        pods=[_to_place(each, replicas, in_addition=in_addition) for each in requests],
        scenario=asked.fill(scenario),
        find_fewest_nodes=fewest_nodes,
        reschedule=reschedule,
    )
    with options.client() as client:
        if not (requests or scenario.changes.add_pods):
            require_pods(client)
        found = client.call("Simulate", asked.fill(request))
        if not in_addition:
            found.warnings.extend(_beside(requests, found, StatePods(client, asked.consistency)))
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
    return NO_NODE_FITS if found.pending_pod_count else DONE


def _drained(text: str) -> pb.DrainedNode:
    node, equals, mode = text.partition("=")
    if not node or (equals and mode != "tainted"):
        raise BadInput(f"--drain {text}: write NODE, or NODE=tainted")
    tainted = pb.DRAIN_MODE_TAINTED if equals else pb.DRAIN_MODE_UNSPECIFIED
    return pb.DrainedNode(node=node_name(node), mode=tainted)


_NEW_EACH_TIME: Final = frozenset({"CronJob"})
"""Kinds whose pods are more each time, whatever is there."""


def _to_place(request: PodRequest, given: int | None, *, in_addition: bool) -> pb.PodsToPlace:
    """A pod or workload to place: of what is in the state already only what is missing."""
    placed = pb.PodsToPlace(pod=request.source, replicas=_replicas(request, given))
    kind, name = request.subject.kind, request.subject.pod.name
    copies = request.replicas is None and given is not None
    alone = request.several_templates or kind in _NEW_EACH_TIME
    if in_addition or copies or alone or not name or placed.pod.HasField("ref"):
        return placed
    placed.workload.kind, placed.workload.name = kind, name
    if given is None and not request.says_replicas and kind not in (POD, "Job"):
        # Applied, it leaves the number as it is; and a DaemonSet has none.
        placed.ClearField("replicas")
    if request.completions is not None:
        placed.completions = request.completions
    return placed


def _beside(
    requests: Sequence[PodRequest], found: SimulateResponse, state: StatePods
) -> Iterable[str]:
    """Warnings of workloads whose pods in the state are no part of what is asked for."""
    known = {each.pods_index for each in found.workloads}
    texts: dict[str, None] = {}
    for index, each in enumerate(requests):
        pod, kind = each.subject.pod, each.subject.kind
        is_own = kind in (POD, *OWNERS) and not each.several_templates
        if index in known or is_own or each.source.HasField("ref") or not pod.name:
            continue
        workload = ObjectName(kind, pod.namespace, pod.name)
        pods = state.pods_of(workload)
        by = {state.controllers(pod)[0] for pod in pods} - {workload}
        makers = sorted(f"{maker.kind}/{maker.name}" for maker in by)
        if pods:
            text = f"{kind} {pod.namespace}/{pod.name} has {counted(len(pods), 'pod')} in the state"
            if makers:
                text += f", by {', '.join(makers[:_MAKERS])}"
            texts[f"{text}: what is placed of it is more"] = None
    return texts


def _replicas(request: PodRequest, given: int | None) -> int | None:
    """Number of pods to place; None for a pod of the state, and for one without replicas."""
    if request.source.HasField("ref"):
        return None
    wanted = request.replicas if given is None else given
    if wanted is not None and wanted > MAX_NUMBER:
        raise BadInput(f"{request.title}: {wanted} replicas are more than {MAX_NUMBER}")
    return wanted


def _running_pods(
    paths: Sequence[str], validation: FieldValidation, namespace: str | None
) -> list[PodOnNode]:
    if not paths:
        return []
    pods, _ = manifest_pods(manifest_files.read(paths), validation, namespace)
    return [PodOnNode(pod=PodSource(object=pod)) for _, pod in pods]


def _node_groups(
    given: Sequence[str], zones: str | None, validation: FieldValidation, *, fewest: bool
) -> list[pb.NodeGroup]:
    """Node groups of `--add-nodes PATH[=N]`, one for each Node in the file."""
    if zones and not given:
        raise BadInput("--zones says where the nodes of --add-nodes are: give these, too")
    variants = [pb.NodeLabels(labels={_ZONE: zone}) for zone in (zones or "").split(",") if zone]
    groups: list[pb.NodeGroup] = []
    for text in given:
        path, count = _path_and_count(text, None if fewest else 1)
        nodes = [each for each in manifest_files.read([path]) if each.kind == "Node"]
        if not nodes:
            raise BadInput(f"--add-nodes {path}: no Node in it: give what the nodes are like")
        converted, _ = storable_objects(nodes, validation, named=False)
        groups += [
            pb.NodeGroup(template=each.node, node_count=count, variants=variants)
            for _, each in converted
        ]
    return groups


def _path_and_count(text: str, default: int | None) -> tuple[str, int | None]:
    path, equals, number = text.rpartition("=")
    if not equals:
        return text, default
    try:
        count = int(number)
    except ValueError:
        raise BadInput(f"--add-nodes {text}: write PATH=N, where N is a whole number") from None
    if not 0 <= count <= MAX_NUMBER:
        more = "0 or more" if count < 0 else f"at most {MAX_NUMBER}"
        raise BadInput(f"--add-nodes {text}: {count} nodes cannot join: write {more}")
    return path, count


def _constraint_changes(given: Sequence[str]) -> list[pb.ConstraintChange]:
    """Changes of constraints that `--constraint KEY:NAME=VALUE,…` asks for."""
    changes: list[pb.ConstraintChange] = []
    messages: list[str] = []
    for text in given:
        key, colon, pairs = text.partition(":")
        change = pb.ConstraintChange(match=pb.ConstraintMatch(topology_key=key))
        for pair in pairs.split(",") if colon else ():
            name, _, value = pair.partition("=")
            field = _VALUES.get(name)
            is_number = field is not None and field.cpp_type == field.CPPTYPE_INT32
            if field is None or not (_NUMBER.fullmatch(value) if is_number else value):
                known = ", ".join(_VALUES)
                messages.append(
                    f"--constraint {text}: {pair!r}: write NAME=VALUE with one of {known}"
                )
            elif name == "minDomains" and int(value) == 0:
                change.clear_min_domains = True
            else:
                setattr(change.set, field.name, int(value) if is_number else value)
        if not key or not colon:
            messages.append(
                f"--constraint {text}: write KEY:NAME=VALUE, for example {_ZONE}:maxSkew=2"
            )
        changes.append(change)
    if messages:
        raise BadInput(*messages)
    return changes


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
            ("joined", _by_group(found.joined)),
            ("evicted", found.evicted_pod_count or ""),
            ("fewest nodes", _fewest_text(found)),
            ("it takes", "; ".join(found.advice)),
            ("not looked at", ", ".join(found.not_modelled)),
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
