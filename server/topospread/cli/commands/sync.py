"""`topospread sync`: sync a server's state from a cluster's API server."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import click

import topospread_client as client_errors
from topospread import errors
from topospread.cli.errors import DONE, BadInput, Unreachable
from topospread.cli.options import PATH, ClientOptions, pass_options, server_options
from topospread.cli.output import allow_closed_stdout
from topospread.config import values
from topospread.kubernetes.objects import LISTED_KINDS
from topospread_proto.v1 import common_pb2
from topospread_proto.v1.cluster_state_service_pb2 import ObjectReference, UnknownKind
from topospread_proto.v1.lease_service_pb2 import AcquireLeaseRequest, ReleaseLeaseRequest

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from topospread.app.cluster_sync import SyncProcess
    from topospread.kube.versions import KubernetesVersion
    from topospread.kubernetes.objects import DeletedObject, ObservedObject
    from topospread.store.model import Kind as StoredKind
    from topospread_client import Client


def _http(_: click.Context, __: click.Parameter, value: str) -> values.Address | None:
    try:
        return values.address_or_off(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} {error}") from error


@click.command("sync", short_help="Sync the state from a Kubernetes cluster.")
@click.option(
    "--kubeconfig",
    default="",
    metavar="FILE",
    type=PATH,
    help="Names the API server.",
)
@click.option("--kube-context", default="", metavar="NAME", help="Context of the kubeconfig.")
@click.option(
    "--exclude-namespace",
    "excluded_namespaces",
    multiple=True,
    metavar="NAME",
    help="Sync nothing of this namespace. May be repeated.",
)
@click.option(
    "--lease",
    type=click.FloatRange(1, 3600),
    default=15.0,
    show_default=True,
    metavar="SECONDS",
    help="How long the lease of a process that died lasts before another one syncs.",
)
@click.option("--once", is_flag=True, help="List everything once, within --timeout, and end.")
@click.option(
    "--http",
    default="off",
    show_default=True,
    callback=_http,
    metavar="HOST:PORT",
    help="Where /metrics, /livez and /readyz are served.",
)
@server_options
@pass_options
def command(
    options: ClientOptions,
    kubeconfig: str,
    kube_context: str,
    excluded_namespaces: tuple[str, ...],
    lease: float,
    once: bool,
    http: values.Address | None,
) -> int:
    """List and watch nodes, pods and workloads, and write them to a server's state.

    The API server is that of --kubeconfig, else of $KUBECONFIG or ~/.kube/config, else of the pod
    that this runs in. It runs until SIGTERM or Ctrl-C. `topospread serve --sync` does the same
    within a server.
    """
    from topospread.app.cluster_sync import SyncProcess, holder_identity
    from topospread.kubernetes.api_server import ClusterAccess, open_api_server
    from topospread.telemetry.logs import start_logging

    try:
        api = open_api_server(ClusterAccess(kubeconfig, kube_context))
        with options.server_client() as client:
            sink = ClientSink(client, holder_identity())
            syncing = SyncProcess(options.cluster, api, sink, lease, excluded_namespaces, http)
            logs = start_logging("info", "auto")
            try:
                listed = syncing.run(_announce, once_within=options.timeout if once else None)
            finally:
                logs.close()
    except errors.ConfigError as error:
        raise BadInput(*str(error).splitlines()) from error
    if once and not listed:
        raise Unreachable(
            f"not everything was listed within {options.timeout:g} s: the lines above say why;"
            " give more with --timeout"
        )
    return DONE


def _announce(syncing: SyncProcess) -> None:
    allow_closed_stdout()
    click.echo(f"topospread syncs {syncing.cluster} from {syncing.api_address}")
    if syncing.http_address:
        click.echo(f"metrics and health on http://{syncing.http_address}")


class ClientSink:
    """A :class:`~topospread.kubernetes.sink.Sink` over gRPC."""

    def __init__(self, client: Client, holder: str) -> None:
        self._client = client
        self._holder = holder

    def acquire(self, seconds: float) -> int:
        """See Sink."""
        request = AcquireLeaseRequest(holder_identity=self._holder)
        request.lease_duration.FromTimedelta(timedelta(seconds=seconds))
        with _server_errors():
            answer = self._client.call("AcquireLease", request)
        return int(answer.lease.fencing_token)  # 0 in the lease of another holder

    def release(self, fence: int) -> None:
        """See Sink."""
        request = ReleaseLeaseRequest(holder_identity=self._holder, fencing_token=fence)
        with _server_errors():
            self._client.call("ReleaseLease", request)

    def replace(
        self,
        kind: StoredKind,
        objects: Sequence[ObservedObject],
        version: str,
        *,
        force: bool,
        fence: int,
        kubernetes_version: KubernetesVersion | None = None,
    ) -> int:
        """See Sink."""
        with _server_errors():
            replaced = self._client.replace_objects(
                _number(kind),
                [one.message for one in objects],
                resource_version=version,
                force=force,
                fencing_token=fence,
                kinds=map(_number, LISTED_KINDS),
                kubernetes_version="" if kubernetes_version is None else str(kubernetes_version),
            )
        return int(replaced.ignored_stale_count)

    def write(
        self,
        objects: Sequence[ObservedObject],
        deleted: Sequence[DeletedObject],
        *,
        observed: Mapping[StoredKind, str],
        fence: int,
    ) -> None:
        """See Sink."""
        read = [
            common_pb2.ResourceVersion(kind=_number(kind), resource_version=version)
            for kind, version in observed.items()
        ]
        with _server_errors():
            if objects or not deleted:
                self._client.apply_objects(
                    [one.message for one in objects],
                    fencing_token=fence,
                    observed=() if deleted else read,
                )
            if deleted:
                gone = [
                    ObjectReference(
                        kind=_number(each.key.kind),
                        name=each.key.name,
                        namespace=each.key.namespace or "",
                        resource_version=each.version or "",
                    )
                    for each in deleted
                ]
                self._client.delete_objects(gone, fencing_token=fence, observed=read)

    def note_unknown(self, kind: StoredKind, reason: str, *, fence: int) -> None:
        """See Sink."""
        unknown = UnknownKind(kind=_number(kind), reason=reason)
        with _server_errors():
            self._client.apply_objects((), fencing_token=fence, unknown_kinds=[unknown])


def _number(kind: StoredKind) -> common_pb2.Kind.ValueType:
    return common_pb2.Kind.Value(f"KIND_{kind.name}")


@contextmanager
def _server_errors() -> Generator[None]:
    """Raise errors of calls as the server's own errors, which the sync handles."""
    try:
        yield
    except client_errors.InvalidRequest as error:
        raise errors.InvalidRequest(str(error)) from error
    except client_errors.Fenced as error:
        raise errors.Fenced(str(error)) from error
    except client_errors.StoreIdentityChanged as error:
        raise errors.IdentityChanged(str(error)) from error
    except client_errors.TopospreadClientError as error:
        # All others may pass while this runs: the server is down, is full, or does not know this
        # caller yet.
        raise errors.Unavailable(f"the server: {error}") from error
