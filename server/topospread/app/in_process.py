"""A server within a command: one cluster in memory, served to this process and nobody else."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Final

from topospread.app.server import Server
from topospread.app.stores import open_store
from topospread.config.loading import load_settings
from topospread.store.model import Put
from topospread.store.urls import MEMORY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from topospread.store.model import StoredObject

_BATCH: Final = 500

_SETTINGS: Final = {
    "store": MEMORY,
    "http": "off",
    "extender": "off",
    "reflection": False,
    "max_clusters": 1,
    "max_cluster_constraints": 1_000_000,
    "max_connections": 4,
    "shutdown_delay": 0,
}
"""What differs from the settings of a server that others call."""


@contextmanager
def serve_objects(cluster: str, objects: Iterable[StoredObject], config: str = "") -> Iterator[str]:
    """Serve the objects of one cluster from memory; yields gRPC's target.

    It is a Unix socket in a folder that only this user can open, and a server as `topospread serve`
    runs one, so every method answers as it does there.

    Args:
        cluster: its name.
        objects: each once; read when the configuration has turned out to be usable.
        config: file with the scheduler's configuration; empty for kube-scheduler's defaults.

    Raises:
        ConfigError: the configuration cannot be used.
        TopospreadError: an object that cannot be stored.
    """
    # No text of a file: of a server's own settings none holds here.
    settings = load_settings({**_SETTINGS, "config": config, "preload": (cluster,)}, {}, "")
    with tempfile.TemporaryDirectory(prefix="topospread-") as folder:
        store = open_store(MEMORY, {})
        try:
            server = Server(settings, {}, store=store, socket=os.path.join(folder, "grpc"))
        except BaseException:
            store.close()
            raise
        try:
            each = iter(objects)
            while batch := [Put(one) for one in islice(each, _BATCH)]:
                store.apply(cluster, batch)
        except BaseException:
            server.stop(0.0)
            raise
        with server:
            yield server.address
