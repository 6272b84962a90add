"""A server that writes whatever it judged, also when the state has changed since.

    python -m tests.bench.race.unguarded STORE CONFIG

Only to show that a race finds the breaches that the precondition prevents.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any, cast

import click

from topospread.app.server import Server
from topospread.app.stop_event import StopEvent
from topospread.app.stores import open_store
from topospread.config.loading import load_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.store.api import Store
    from topospread.store.model import Applied, Change, Unchanged


class UnguardedStore:
    """A store whose preconditions always hold."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def apply(
        self,
        cluster: str,
        changes: Sequence[Change],
        *,
        precondition: Unchanged | None = None,
        **more: Any,
    ) -> Applied:
        """Write without looking."""
        del precondition
        return self._store.apply(cluster, changes, **more)


def main() -> None:
    """Serve until SIGTERM."""
    address, config = sys.argv[1:]
    flags = {"listen": "127.0.0.1:0", "http": "off", "store": address, "config": config}
    store = cast("Store", UnguardedStore(open_store(address, os.environ)))
    done = StopEvent()
    signal.signal(signal.SIGTERM, lambda *_: done.set())
    with Server(load_settings(flags, {}), store=store) as server:
        click.echo(f"an unguarded server listens on {server.address}")
        sys.stdout.flush()
        done.wait()


if __name__ == "__main__":
    main()
