"""`topospread simulate`: what would happen if pods were placed on the live state plus changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from topospread.cli import manifest_files
from topospread.cli.errors import DONE, NO_NODE_FITS, BadInput
from topospread.cli.kinds import node_name, pod_name
from topospread.cli.manifest_objects import manifest_pods, pod_requests, storable_objects
from topospread.cli.options import (
    PATH,
    ClientOptions,
    output_option,
    pass_options,
    server_options,
)
from topospread.cli.render import simulation
from topospread.cli.request_options import (
    FITS,
    consistency_of,
    consistency_option,
    input_options,
    rules_options,
    settings_of,
    validation_option,
)
from topospread.cli.state_source import from_option
from topospread_client import (
    ConstraintChange,
    ConstraintValidation,
    ConstraintValues,
    DrainedNode,
    DrainMode,
    NodeGroup,
    PodReference,
    PodsToPlace,
    Scenario,
    SupposedChanges,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.cli.field_validation import FieldValidation
    from topospread.cli.manifest_objects import ManifestPod, PodRequest

_COUNT: Final = click.IntRange(0)

_ZONE: Final = "topology.kubernetes.io/zone"

_NUMBERS: Final = {"maxSkew": "max_skew", "minDomains": "min_domains"}
_STRINGS: Final = {
    "whenUnsatisfiable": "when_unsatisfiable",
    "nodeAffinityPolicy": "node_affinity_policy",
    "nodeTaintsPolicy": "node_taints_policy",
}


@click.command("simulate", short_help="What would happen: place pods on the state plus changes.")
@click.argument("stored", nargs=-1, metavar="[NAME]...")
@input_options(required=False)
@click.option(
    "--replicas", type=_COUNT, help="Of each pod in files.  [what a workload says; a pod: 1]"
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
@click.option(
    "--fit",
    type=click.Choice(list(FITS)),
    help="What to ask beside spreading.  [node-and-resources]",
)
@click.option("--seed", default="", metavar="TEXT", help="Orders equal nodes, as for `place`.")
@rules_options
@validation_option
@consistency_option
@from_option
@server_options
@output_option
@pass_options
def command(
    options: ClientOptions,
    stored: Sequence[str],
    paths: Sequence[str],
    recursive: bool,
    namespace: str | None,
    replicas: int | None,
    add_nodes: Sequence[str],
    zones: str | None,
    drained: Sequence[str],
    reschedule: bool,
    add_pods: Sequence[str],
    deleted: Sequence[str],
    constraints: Sequence[str],
    fewest_nodes: bool,
    fit: str | None,
    seed: str,
    args_file: str | None,
    profile: str | None,
    gates: Sequence[str],
    validation: FieldValidation,
    consistency: str,
) -> int:
    """Place pods one by one, as `place` would, on the live state plus changes. Nothing is written.

    Files may hold pods, and workloads for the pods they would make. The exit code is 1 when a pod
    stays pending.
    """
    requests: list[PodRequest] = []
    if stored or paths or not reschedule:
        requests = pod_requests(
            stored, paths, recursive=recursive, namespace=namespace, validation=validation
        )
    running = _running_pods(add_pods, validation, namespace)
    validations = {each.validation for each in requests}
    scenario = Scenario(
        changes=SupposedChanges(
            add_node_groups=_node_groups(add_nodes, zones, validation, fewest=fewest_nodes),
            drain_nodes=[_drained(text) for text in drained],
            add_pods=[(each.pod, None) for each in running],
            delete_pods=[pod_name(text, namespace) for text in deleted],
            constraint_changes=_constraint_changes(constraints),
        ),
        fit=FITS[fit] if fit else None,
        seed=seed or None,
        settings=settings_of(args_file, profile, gates),
        validation=ConstraintValidation.STRICT
        if ConstraintValidation.STRICT in validations
        else ConstraintValidation.IGNORE,
    )
    with options.client() as client:
        found = client.simulate(
            [PodsToPlace(each.pod, _replicas(each, replicas)) for each in requests],
            scenario=scenario,
            find_fewest_nodes=fewest_nodes,
            reschedule=reschedule,
            consistency=consistency_of(consistency),
        )
    simulation.show(found, requests, options.output, options.cluster)
    return NO_NODE_FITS if found.pending_pod_count else DONE


def _drained(text: str) -> DrainedNode:
    node, equals, mode = text.partition("=")
    if not node or (equals and mode != "tainted"):
        raise BadInput(f"--drain {text}: write NODE, or NODE=tainted")
    return DrainedNode(node_name(node), DrainMode.TAINTED if equals else None)


def _replicas(request: PodRequest, given: int | None) -> int | None:
    """Number of pods to place; None for a pod of the state, and for one without replicas."""
    if isinstance(request.pod, PodReference):
        return None
    return request.replicas if given is None else given


def _running_pods(
    paths: Sequence[str], validation: FieldValidation, namespace: str | None
) -> list[ManifestPod]:
    return manifest_pods(manifest_files.read(paths), validation, namespace)[0] if paths else []


def _node_groups(
    given: Sequence[str], zones: str | None, validation: FieldValidation, *, fewest: bool
) -> list[NodeGroup]:
    """Node groups of `--add-nodes PATH[=N]`, one for each Node in the file.

    Args:
        given: values of the option.
        zones: names, separated by commas.
        validation: of the fields in the files.
        fewest: without N, as many as it takes; otherwise one.

    Raises:
        BadInput: a file that cannot be read or has no Node, or N that is no number.
    """
    if zones and not given:
        raise BadInput("--zones says where the nodes of --add-nodes are: give these, too")
    variants = [{_ZONE: zone} for zone in zones.split(",") if zone] if zones else []
    groups: list[NodeGroup] = []
    for text in given:
        path, count = _path_and_count(text, None if fewest else 1)
        nodes = [each for each in manifest_files.read([path]) if each.kind == "Node"]
        if not nodes:
            raise BadInput(f"--add-nodes {path}: no Node in it: give what the nodes are like")
        converted = storable_objects(nodes, validation, named=False).objects
        groups += [NodeGroup(each.node, count, variants=variants) for _, each in converted]
    return groups


def _path_and_count(text: str, default: int | None) -> tuple[str, int | None]:
    path, equals, number = text.rpartition("=")
    if not equals:
        return text, default
    try:
        count = int(number)
    except ValueError:
        raise BadInput(f"--add-nodes {text}: write PATH=N, where N is a whole number") from None
    if count < 0:
        raise BadInput(f"--add-nodes {text}: {count} nodes cannot join: write 0 or more")
    return path, count


def _constraint_changes(given: Sequence[str]) -> list[ConstraintChange]:
    """Changes of constraints that `--constraint KEY:NAME=VALUE,…` asks for.

    Raises:
        BadInput: all values that cannot be parsed.
    """
    changes: list[ConstraintChange] = []
    messages: list[str] = []
    for text in given:
        key, colon, pairs = text.partition(":")
        values: dict[str, Any] = {}
        for pair in pairs.split(",") if colon else ():
            name, _, value = pair.partition("=")
            if name in _NUMBERS and value.lstrip("-").isdecimal():
                values[_NUMBERS[name]] = int(value)
            elif name in _STRINGS and value:
                values[_STRINGS[name]] = value
            else:
                known = ", ".join((*_NUMBERS, *_STRINGS))
                messages.append(
                    f"--constraint {text}: {pair!r}: write NAME=VALUE with one of {known}"
                )
        if not key or not colon:
            messages.append(
                f"--constraint {text}: write KEY:NAME=VALUE, for example {_ZONE}:maxSkew=2"
            )
        elif values:
            clear = values.get("min_domains") == 0
            if clear:
                del values["min_domains"]
            change = ConstraintChange(key, ConstraintValues(**values), clear_min_domains=clear)
            changes.append(change)
    if messages:
        raise BadInput(*messages)
    return changes
