"""Options of `topospread simulate` that change the state: nodes and pods that come and go."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from topospread.cli import manifest_files
from topospread.cli.errors import BadInput
from topospread.cli.kinds import node_name
from topospread.cli.manifest_objects import manifest_pods, storable_objects
from topospread.cli.options import MAX_NUMBER
from topospread_proto.v1 import scenario_pb2 as pb
from topospread_proto.v1.common_pb2 import PodOnNode, PodSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.cli.manifest_objects import FieldValidation

_NUMBER: Final = re.compile(r"-?[0-9]{1,9}")

_ZONE: Final = "topology.kubernetes.io/zone"

_VALUES: Final = {each.json_name: each for each in pb.ConstraintValues.DESCRIPTOR.fields}
"""Fields of constraints that `--constraint` changes, by the names that are typed."""


def drained_node(text: str) -> pb.DrainedNode:
    """A node of `--drain NODE[=tainted]`."""
    node, equals, mode = text.partition("=")
    if not node or (equals and mode != "tainted"):
        raise BadInput(f"--drain {text}: write NODE, or NODE=tainted")
    tainted = pb.DRAIN_MODE_TAINTED if equals else pb.DRAIN_MODE_UNSPECIFIED
    return pb.DrainedNode(node=node_name(node), mode=tainted)


def running_pods(
    paths: Sequence[str], validation: FieldValidation, namespace: str | None
) -> list[PodOnNode]:
    """Pods of `--add-pods PATH`."""
    if not paths:
        return []
    pods, _ = manifest_pods(manifest_files.read(paths), validation, namespace)
    return [PodOnNode(pod=PodSource(object=pod)) for _, pod in pods]


def node_groups(
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


def constraint_changes(given: Sequence[str]) -> list[pb.ConstraintChange]:
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
