"""The states of a rollout: which pods run where, and what may come after."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray

    from topospread.spread.rollouts import RolloutWait

WAITING: Final = -1
"""In the place of the position of an old pod: one that waits."""


class State(NamedTuple):
    """Pods that run, by slot; a slot of −1 is that of a node that is not known.

    Attributes:
        old: (slot, kind, pods).
        new: (slot, pods), by slot.
        waiting: old ones that have no node.
    """

    old: tuple[tuple[int, int, int], ...]
    new: tuple[tuple[int, int], ...]
    waiting: int

    @property
    def size(self) -> int:
        """How many entries it has."""
        return len(self.old) + len(self.new)

    def entries(self) -> dict[int, Hashable]:
        """What is on each slot that has any."""
        found: dict[int, list[tuple[int, int]]] = {}
        for slot, kind, pods in self.old:
            found.setdefault(slot, []).append((kind, pods))
        for slot, pods in self.new:
            found.setdefault(slot, []).append((-1, pods))
        return {slot: tuple(each) for slot, each in found.items()}

    def key(self, alike: NDArray[np.intp]) -> bytes:
        """Equal for states in which nodes that are alike have changed places.

        Args:
            alike: by slot, equal numbers for nodes that are.
        """
        here = Counter((int(alike[slot]), each) for slot, each in self.entries().items())
        return blake2b(repr((sorted(here.items()), self.waiting)).encode(), digest_size=16).digest()

    def without(self, at: int) -> State:
        """One old pod less: at a position, or one that waits."""
        if at == WAITING:
            return self._replace(waiting=self.waiting - 1)
        slot, kind, pods = self.old[at]
        left = ((slot, kind, pods - 1),) if pods > 1 else ()
        return self._replace(old=(*self.old[:at], *left, *self.old[at + 1 :]))

    def beside(self, slot: int) -> State:
        """One new pod more. It shares all other entries, which are many."""
        at = bisect_left(self.new, (slot, 0))
        is_there = at < len(self.new) and self.new[at][0] == slot
        pods = self.new[at][1] if is_there else 0
        return self._replace(
            new=(*self.new[:at], (slot, pods + 1), *self.new[at + is_there :]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class NextStates:
    """The states that may come after one, each made when it is asked for.

    There may be one for each node of a cluster, and each has an entry for each pod.

    Attributes:
        gone: positions of old pods of which one goes.
        come: slots on which a new one comes.
    """

    state: State
    gone: Sequence[int] = ()
    come: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, dtype=np.int32))

    def __len__(self) -> int:
        return len(self.gone) + self.come.size

    def __getitem__(self, number: int) -> State:
        if number < len(self.gone):
            return self.state.without(self.gone[number])
        return self.state.beside(int(self.come[number - len(self.gone)]))


class Steps(NamedTuple):
    """What comes after a state: others, or the end of the rollout."""

    states: NextStates | None = None
    has_completed: bool = False
    wait: RolloutWait | None = None
    may_preempt: bool = False
