"""Options that say what to suppose → parts of Simulate's request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from topospread.cli import documents, objects
from topospread.cli.complaints import BadInput
from topospread_client import ConstraintChange, ConstraintValues, NodeGroup

if TYPE_CHECKING:
    from collections.abc import Sequence

ZONE: Final = "topology.kubernetes.io/zone"

_NUMBERS: Final = {"maxSkew": "max_skew", "minDomains": "min_domains"}
_WORDS: Final = {
    "whenUnsatisfiable": "when_unsatisfiable",
    "nodeAffinityPolicy": "node_affinity_policy",
    "nodeTaintsPolicy": "node_taints_policy",
}


def groups_of(given: Sequence[str], zones: str | None, *, fewest: bool) -> list[NodeGroup]:
    """A node group for each Node in the files of PATH[=N].

    Args:
        given: as it was written.
        zones: names, separated by commas.
        fewest: without N, as many as it takes; otherwise one.

    Raises:
        BadInput: a file that cannot be read or has no Node, or a number that is none.
    """
    if zones and not given:
        raise BadInput("--zones says where the nodes of --add-nodes are: give these, too")
    variants = [{ZONE: zone} for zone in zones.split(",") if zone] if zones else []
    groups: list[NodeGroup] = []
    for text in given:
        path, count = _counted(text, None if fewest else 1)
        nodes = [each for each in documents.read([path]) if each.kind == "Node"]
        if not nodes:
            raise BadInput(f"--add-nodes {path}: no Node in it: give what the nodes are like")
        made = objects.to_keep(nodes).kept
        groups += [NodeGroup(each.node, count, variants=variants) for _, each in made]
    return groups


def _counted(text: str, default: int | None) -> tuple[str, int | None]:
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


def changes_of(given: Sequence[str]) -> list[ConstraintChange]:
    """Other values for constraints, from KEY:NAME=VALUE,….

    Raises:
        BadInput: everything that cannot be read, at once.
    """
    changes: list[ConstraintChange] = []
    wrong: list[str] = []
    for text in given:
        key, colon, pairs = text.partition(":")
        values: dict[str, Any] = {}
        for pair in pairs.split(",") if colon else ():
            name, _, value = pair.partition("=")
            if name in _NUMBERS and value.lstrip("-").isdecimal():
                values[_NUMBERS[name]] = int(value)
            elif name in _WORDS and value:
                values[_WORDS[name]] = value
            else:
                known = ", ".join((*_NUMBERS, *_WORDS))
                wrong.append(f"--constraint {text}: {pair!r}: write NAME=VALUE with one of {known}")
        if not key or not colon:
            wrong.append(f"--constraint {text}: write KEY:NAME=VALUE, for example {ZONE}:maxSkew=2")
        elif values:
            clear = values.get("min_domains") == 0
            if clear:
                del values["min_domains"]
            change = ConstraintChange(key, ConstraintValues(**values), clear_min_domains=clear)
            changes.append(change)
    if wrong:
        raise BadInput(*wrong)
    return changes
