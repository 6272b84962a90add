"""`topospread get`: objects of a cluster's state."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import click

from topospread.cli import documents, output
from topospread.cli.errors import DONE
from topospread.cli.kinds import (
    complete_kinds,
    is_reservation,
    kinds_named,
    path_of,
    reservation_path,
)
from topospread.cli.options import ClientOptions, output_option, pass_options, server_options
from topospread.cli.request_options import all_namespaces_option, check_all_namespaces
from topospread_client import Kind, PodReference, manifest_from_object, selector_from_query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from topospread_client import Client, Reservation
    from topospread_proto.kubernetes.v1.kubernetes_pb2 import LabelSelector, Node, Pod
    from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject

_ZONE: Final = "topology.kubernetes.io/zone"
_HOSTNAME: Final = "kubernetes.io/hostname"
_COLUMNS: Final = {
    Kind.NODE: ["NAME", "ZONE", "HOSTNAME", "SCHEDULING", "TAINTS"],
    Kind.POD: ["NAMESPACE", "NAME", "NODE", "PHASE", "#CONSTRAINTS", "LABELS"],
}
_WORKLOAD_COLUMNS: Final = ["KIND", "NAMESPACE", "NAME", "#REPLICAS", "SELECTOR"]
_RESERVATION_COLUMNS: Final = ["NAMESPACE", "NAME", "NODE", "EXPIRES", "UID", "LABELS"]
_PAGE_SIZE: Final = 1000


class _Page(Protocol):
    @property
    def next_page_token(self) -> str: ...


_P = TypeVar("_P", bound=_Page)


@click.command("get", short_help="Show nodes, pods or workloads.")
@click.argument("what", metavar="KIND", shell_complete=complete_kinds)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("-n", "--namespace", metavar="NAME", help="Only this namespace; with names: default.")
@all_namespaces_option
@click.option("-l", "--selector", metavar="QUERY", help="Only these labels, as kubectl takes them.")
@server_options
@output_option
@pass_options
def command(
    options: ClientOptions,
    what: str,
    names: Sequence[str],
    namespace: str | None,
    all_namespaces: bool,
    selector: str | None,
) -> int:
    """Show nodes, pods or workloads as they are kept: trimmed to what matters to spreading.

    KIND is nodes, pods, services, replicationcontrollers, replicasets, statefulsets, or workloads
    for the last four; or reservations, for the places that are held for pods.
    """
    check_all_namespaces(all_namespaces=all_namespaces, namespace=namespace)
    if all_namespaces and names:
        raise click.UsageError("names are of one namespace: leave -A out, or the names")
    if is_reservation(what):
        return _get_reservations(options, names, namespace, selector)
    kinds = kinds_named(what)
    labels = selector_from_query(selector, "--selector") if selector else None
    with options.client() as client:
        found, revision = _objects(client, kinds, names, namespace, labels)
    if options.output == "name":
        for kind, each in found:
            metadata = getattr(each, kind.field).metadata
            output.echo(path_of(kind, metadata.namespace, metadata.name))
    elif options.output == "table":
        _print(kinds, found)
    else:
        manifests = [manifest_from_object(each) for _, each in found]
        one = manifests[0] if len(names) == 1 and len(manifests) == 1 else None
        # As kubectl writes it: a list that was cut has no kind.
        items = {"apiVersion": "v1", "revision": revision, "items": manifests, "kind": "List"}
        output.dump(one or items, options.output)
    return DONE


def _objects(
    client: Client,
    kinds: Sequence[Kind],
    names: Sequence[str],
    namespace: str | None,
    labels: LabelSelector | None,
) -> tuple[Sequence[tuple[Kind, ClusterObject]], str]:
    """Objects, and the revision of the first answer; later answers may hold newer objects."""
    if names and labels is not None:
        raise click.UsageError("give names or --selector, not both")
    if names and len(kinds) > 1:
        raise click.UsageError("workloads are of several kinds: name the kind of what is wanted")
    found: list[tuple[Kind, ClusterObject]] = []
    revisions: list[str] = []
    for kind in kinds:
        space = None if kind is Kind.NODE else namespace
        if names:
            for name in names:
                answer = client.get_object(kind, name, namespace=space)
                found.append((kind, answer.object))
                revisions.append(answer.revision)
            continue
        ask = partial(client.list_objects_page, kind, namespace=space, label_selector=labels)
        for page in _pages(ask):
            found += [(kind, each) for each in page.objects]
            revisions.append(page.revision)
    return found, revisions[0]


def _get_reservations(
    options: ClientOptions, names: Sequence[str], namespace: str | None, selector: str | None
) -> int:
    if names and selector:
        raise click.UsageError("give names or --selector, not both")
    with options.client() as client:
        if names:
            answers = [client.get_reservation(PodReference(name, namespace)) for name in names]
            found, revision = [each.reservation for each in answers], answers[0].revision
        else:
            labels = selector_from_query(selector, "--selector") if selector else None
            ask = partial(client.list_reservations_page, namespace=namespace, label_selector=labels)
            listed = list(_pages(ask))
            found = [each for page in listed for each in page.reservations]
            revision = listed[0].revision
    if options.output == "name":
        for each in found:
            output.echo(reservation_path(each.pod))
    elif options.output != "table":
        documents.show(
            "ReservationList",
            options.output,
            cluster=options.cluster,
            revision=revision,
            items=found,
        )
    elif not found:
        output.warn("no reservations found")
    else:
        output.table(_RESERVATION_COLUMNS, map(_reservation_row, found))
    return DONE


def _pages(ask: Callable[..., _P]) -> Iterator[_P]:
    """All pages of a list, each of which `ask` requests by its ``page_token``."""
    token: str | None = None
    while token != "":
        page = ask(page_token=token, page_size=_PAGE_SIZE)
        yield page
        token = page.next_page_token


def _print(kinds: Sequence[Kind], found: Sequence[tuple[Kind, ClusterObject]]) -> None:
    if not found:
        output.warn(f"no {' or '.join(kind.label.lower() + 's' for kind in kinds)} found")
        return
    if kinds[0] is Kind.NODE:
        output.table(_COLUMNS[Kind.NODE], (_node_row(each.node) for _, each in found))
    elif kinds[0] is Kind.POD:
        output.table(_COLUMNS[Kind.POD], (_pod_row(each.pod) for _, each in found))
    else:
        output.table(_WORKLOAD_COLUMNS, (_workload_row(kind, each) for kind, each in found))


def _node_row(node: Node) -> list[object]:
    taints = [f"{taint.key}={taint.value}:{taint.effect}" for taint in node.spec.taints]
    labels = node.metadata.labels
    scheduling = "cordoned" if node.spec.unschedulable else "yes"
    row = [node.metadata.name, labels.get(_ZONE), labels.get(_HOSTNAME), scheduling]
    return [*row, ", ".join(taints)]


def _pod_row(pod: Pod) -> list[object]:
    metadata, spec = pod.metadata, pod.spec
    phase = "Terminating" if metadata.HasField("deletion_timestamp") else pod.status.phase
    labels = ",".join(f"{key}={value}" for key, value in sorted(metadata.labels.items()))
    constraints = len(spec.topology_spread_constraints)
    return [metadata.namespace, metadata.name, spec.node_name, phase, constraints, labels]


def _workload_row(kind: Kind, each: ClusterObject) -> list[object]:
    workload = getattr(each, kind.field)
    spec, metadata = workload.spec, workload.metadata
    replicas = "" if kind is Kind.SERVICE or not spec.HasField("replicas") else spec.replicas
    selector = spec.selector
    if kind in {Kind.REPLICA_SET, Kind.STATEFUL_SET}:
        text = _selector_text(selector) if spec.HasField("selector") else ""
    else:
        text = ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
    return [kind.label, metadata.namespace, metadata.name, replicas, text]


def _selector_text(selector: Any) -> str:
    """Label selector as kubectl's query language writes it."""
    parts = [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
    for expression in selector.match_expressions:
        key, values = expression.key, ",".join(expression.values)
        texts = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }
        parts.append(texts.get(expression.operator, f"{key} {expression.operator} ({values})"))
    return ",".join(parts)


def _reservation_row(reservation: Reservation) -> list[object]:
    pod = reservation.pod
    labels = ",".join(f"{key}={value}" for key, value in sorted(reservation.labels.items()))
    expires = documents.moment(reservation.expire_time) if reservation.expire_time else ""
    return [pod.namespace, pod.name, reservation.node, expires, pod.uid, labels]
