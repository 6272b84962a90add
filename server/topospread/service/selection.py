"""Which nodes an answer is about, and in which order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from topospread.errors import InvalidRequest, NodeTableChanged
from topospread.kube.violations import invalid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from topospread.index.nodes import NodeTable
    from topospread.service.asks import NodeChoice

_NAMED_IN_ERRORS = 10


@dataclass(frozen=True, slots=True, eq=False)
class Selected:
    """Nodes as slots.

    Attributes:
        slots: [selection] −1 for names that are not in the state.
        choice: the caller's own order, which answers keep; None: the node table's.
    """

    slots: NDArray[np.intp]
    choice: NodeChoice | None


def select(nodes: NodeTable, choice: NodeChoice | None) -> Selected:
    """The nodes a caller chose; all, in the table's order, when it did not.

    Raises:
        NodeTableChanged: positions in a table that is not the current one.
        InvalidRequest: a position outside the table.
    """
    if choice is None:
        return Selected(nodes.order, None)
    if not choice.indices:
        return Selected(nodes.slots(choice.names), choice)
    if choice.node_table != nodes.id:
        raise NodeTableChanged(
            "indices refer to another node table: fetch the current one with GetNodeTable", nodes.id
        )
    positions = np.array(choice.indices, dtype=np.int64)
    outside = np.flatnonzero((positions < 0) | (positions >= nodes.count)).tolist()
    if outside:
        text = f"the table has {nodes.count} nodes"
        raise InvalidRequest.of(
            [
                invalid(f"candidates.indices.indices[{at}]", choice.indices[at], text)
                for at in outside[:_NAMED_IN_ERRORS]
            ]
        )
    return Selected(nodes.order[positions], choice)


def distinct(nodes: NodeTable, choice: NodeChoice | None) -> Selected:
    """A choice in which no node of the state is named twice; some names may not be in the state.

    Raises:
        InvalidRequest: a node is given twice. And what :func:`select` raises.
    """
    selected = select(nodes, choice)
    if choice is not None:
        there = selected.slots[selected.slots >= 0]
        if int(np.count_nonzero(_marks(nodes, there))) != there.size:
            raise InvalidRequest.at("candidates", "each node may be given once", "Duplicate value")
    return selected


def known(nodes: NodeTable, choice: NodeChoice) -> Selected:
    """A choice in which every node is known and named once.

    Raises:
        InvalidRequest: naming the first few that are not. And what :func:`select` raises.
    """
    selected = distinct(nodes, choice)
    if (selected.slots < 0).any():
        strangers = [name for name in choice.names if nodes.slot(name) < 0]
        text = f"not in the cluster's state: {_some(strangers)}"
        raise InvalidRequest.at("candidates.names.names", text, "Not found")
    return selected


def in_name_order(nodes: NodeTable, slots: NDArray[np.intp]) -> NDArray[np.intp]:
    """Slots in the order of the node names as bytes, each once."""
    return nodes.order[_marks(nodes, slots)[nodes.order]]


def _marks(nodes: NodeTable, slots: NDArray[np.intp]) -> NDArray[np.bool_]:
    marks = np.zeros(nodes.capacity, dtype=np.bool_)
    marks[slots] = True
    return marks


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(name[:253] for name in names[:_NAMED_IN_ERRORS])
    more = len(names) - _NAMED_IN_ERRORS
    return f"{shown} … and {more} more" if more > 0 else shown
