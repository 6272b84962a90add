"""Whether another history of a cluster may take the place of the one that was followed.

A store that was emptied, restored from elsewhere or exchanged looks like a small cluster. Following
it would tell every scheduler that the nodes are free, so somebody has to say that it is meant: by
deleting the cluster, by a full list of each kind, or in so many words.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from topospread.store.progress import OBSERVABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topospread.store.api import Head, Kind

LISTED_KINDS: Final = OBSERVABLE
"""Kinds that a cluster's truth consists of; what else there is, is the store's own."""


class Fate(Enum):
    """What became of the history that was followed."""

    SAME = auto()
    """It is there."""
    DROPPED = auto()
    """Somebody dropped the cluster: what is there now is meant, if anything is."""
    SUCCEEDED = auto()
    """It is gone, and since then the present history was vouched for in all kinds."""
    LOST = auto()
    """It is gone, and nobody said that the present one is meant."""


class Succession:
    """Judges the heads that a store shows to somebody who holds one history.

    Args:
        identity: of the history that is held.
    """

    def __init__(self, identity: str) -> None:
        self.identity: Final = identity
        self._present = identity
        self._least: Mapping[Kind, int] = {}

    def judge(self, head: Head) -> Fate:
        """The fate of the history that is held; to be called with each head, oldest first.

        What was vouched for before the change was first seen counts nothing: another store may have
        been in use for long, and a store that was empty may have been filled from an old copy.
        """
        if head.identity == self.identity:
            self._present = self.identity
            return Fate.SAME
        if self.identity in head.dropped:
            return Fate.DROPPED
        if head.identity != self._present:
            if head.identity == "":
                # A store that lacks the cluster: what is said of it there is said since.
                self._least = {kind: head.vouched.get(kind, head.at) for kind in LISTED_KINDS}
            elif self._present != "":
                self._least = {kind: head.vouched.get(kind, 0) + 1 for kind in LISTED_KINDS}
            self._present = head.identity
        counted = all(head.vouched.get(kind, -1) >= self._least[kind] for kind in LISTED_KINDS)
        return Fate.SUCCEEDED if counted else Fate.LOST

    def accept(self, identity: str) -> None:
        """Somebody said in so many words that the history with this identity is meant."""
        self._present = identity
        self._least = dict.fromkeys(LISTED_KINDS, -1)
