"""Servers and clusters that live as long as a comparison."""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tests.conformance.recordings import MEMBERS, LoadedCluster
from topospread.app.server import Server
from topospread.cli import output
from topospread.cli.errors import BadInput
from topospread.config.loading import load_settings
from topospread.errors import ConfigError
from topospread_client import (
    Client,
    Connection,
    NotFound,
    TopospreadClientError,
    object_from_manifest,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.recordings import Cluster
    from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject

_APPS: Final = {"ReplicaSet", "StatefulSet"}
_ONE_WRITE: Final = 500
"""Objects that are written at once; more are replaced kind by kind."""


@contextmanager
def temporary_cluster(
    connection: Connection, cluster: Cluster, timeout: float
) -> Iterator[LoadedCluster]:
    """Load a cluster under a random name, and delete it whatever happens."""
    name = f"conf-{secrets.token_hex(8)}"
    with Client(connection, cluster=name, timeout=timeout) as client:
        try:
            yield _loaded(client, cluster)
        finally:
            _delete(client, name)


@contextmanager
def temporary_server(store: str) -> Iterator[Connection]:
    """A server in this process, on a port that the system chooses.

    Args:
        store: its store's address; ``memory:`` vanishes with it.

    Raises:
        BadInput: the store cannot be used.
    """
    flags = {"listen": "127.0.0.1:0", "http": "off", "store": store, "log_level": "warning"}
    try:
        with Server(load_settings(flags, {})) as server:
            yield Connection(server.address)
    except ConfigError as error:
        raise BadInput(str(error)) from error


def _loaded(client: Client, cluster: Cluster) -> LoadedCluster:
    objects = {
        kind: [_object(kind, manifest) for manifest in cluster.get(member) or ()]
        for kind, member in MEMBERS.items()
    }
    everything = [each for of_kind in objects.values() for each in of_kind]
    if 0 < len(everything) <= _ONE_WRITE:
        revision = client.apply_objects(everything).meta.revision
    else:
        revision = ""
        for kind, of_kind in objects.items():
            # An empty list makes a cluster, too.
            if of_kind or kind == "Node":
                revision = client.replace_objects(kind, of_kind).meta.revision
    names = [each.node.metadata.name for each in objects["Node"]]
    return LoadedCluster(client, revision, names)


def _object(kind: str, manifest: dict[str, Any]) -> ClusterObject:
    version = "apps/v1" if kind in _APPS else "v1"
    made = object_from_manifest({"apiVersion": version, "kind": kind, **manifest})
    if made is None:
        raise AssertionError(f"{kind} is a kind that is kept")
    return made


def _delete(client: Client, name: str) -> None:
    try:
        client.delete_cluster(name)
    except NotFound:
        pass  # it was never written
    except TopospreadClientError as error:
        output.warn(f"the temporary cluster {name} could not be deleted: {error}")
