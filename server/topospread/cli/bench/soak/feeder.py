"""Writes what happens through a server, at the pace of whoever records it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from topospread_client import ObjectOutcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from topospread.cli.bench.soak.fleet import Written
    from topospread_client import ApplyObjectsResponse, Client, DeleteObjectsResponse

PATIENCE: Final = 60.0
"""Seconds that a write may take."""

LEAD: Final = 10_000
"""Changes that may be ahead of the recorder: far fewer than the log keeps."""

_USELESS: Final = (ObjectOutcome.IGNORED_STALE, ObjectOutcome.NOT_FOUND)


@dataclass(slots=True)
class Feeder:
    """Writes.

    Attributes:
        catch_up: returns when all that was written is recorded.
        changes: written so far.
        useless: changes that the server said are stale, or of objects that are not there.
    """

    client: Client
    catch_up: Callable[[], None]
    changes: int = 0
    useless: Counter[str] = field(default_factory=Counter)
    _ahead: int = 0

    def write(self, written: Written) -> None:
        """Write first what is gone, then what is there.

        Raises:
            TopospreadClientError: it cannot be written.
        """
        self._note(self.client.delete_objects(written.gone, timeout=PATIENCE))
        left = iter(written.there)
        while some := list(islice(left, LEAD)):
            self._note(self.client.apply_objects(some, timeout=PATIENCE))

    def _note(self, done: ApplyObjectsResponse | DeleteObjectsResponse) -> None:
        self.changes += len(done.results)
        for outcome, count in done.counts().items():
            if outcome in _USELESS:
                self.useless[outcome.lower().replace("_", " ")] += count
        self._ahead += len(done.results)
        if self._ahead >= LEAD:
            self.catch_up()
            self._ahead = 0
