"""What callers ask to be supposed, as plain values."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from topospread.service.fit import Fit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topospread.service.asks import Ask, PodRef
    from topospread.service.constraint_changes import ConstraintChange
    from topospread.service.node_groups import NodeGroup


@dataclass(frozen=True, slots=True)
class PodsToPlace:
    """Pods of one template, or one pod of the state.

    Attributes:
        pod: the bytes of a v1.Pod, or its name in the state.
        path: where that stands in the request.
        replicas: how many, under names of their own; None: one, under the pod's own name.
        generate_name: begins the names of a pod that has none.
    """

    pod: bytes | PodRef
    path: str
    replicas: int | None = None
    generate_name: str = ""


@dataclass(frozen=True, slots=True)
class Added:
    """A pod that is supposed to run.

    Attributes:
        pod: the bytes of a v1.Pod, or its name in the state.
        path: where that stands in the request.
        node: that it runs on; empty for its own.
    """

    pod: bytes | PodRef
    path: str
    node: str


@dataclass(frozen=True, slots=True)
class Drained:
    """A node that is emptied.

    Attributes:
        stays: it is still there, tainted.
    """

    node: str
    stays: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """What a caller wants to know; `ask` has what all decision calls share.

    Attributes:
        pods: to place, in order.
        groups: nodes that join, or with `fewest` may join.
        added: pods that are supposed to run.
        removed: pods of the state.
        fewest: look for the fewest nodes with which all pods fit.
        reschedule: place the pods of drained nodes anew, before all others.
        pause: called between pods; lets other threads have their turn, and may raise to stop.
    """

    ask: Ask
    pods: Sequence[PodsToPlace]
    groups: Sequence[NodeGroup] = ()
    drained: Sequence[Drained] = ()
    added: Sequence[Added] = ()
    removed: Sequence[PodRef] = ()
    constraints: Sequence[ConstraintChange] = ()
    fit: Fit = Fit.NODE_AND_RESOURCES
    seed: str = ""
    fewest: bool = False
    reschedule: bool = False
    pause: Callable[[], None] = lambda: time.sleep(0)
