"""`topospread get`: objects of a cluster's state."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import click

from topospread.cli import documents, output
from topospread.cli.constraint_lists import Wanted, constraint_ids, listed
from topospread.cli.errors import DONE
from topospread.cli.kinds import (
    RESERVATION,
    STORED,
    ObjectName,
    complete_kinds,
    is_constraint,
    is_reservation,
    kinds_named,
    objects_named,
    reservation_path,
)
from topospread.cli.options import ClientOptions, output_option, pass_options, server_options
from topospread.cli.render import constraint_details, constraints, object_changes
from topospread.cli.render.objects import Columns, print_objects, print_reservations
from topospread.cli.request_options import all_namespaces_option, check_all_namespaces
from topospread.cli.state_source import check_changes, from_option
from topospread_client import (
    Consistency,
    ConstraintOrder,
    Kind,
    PodReference,
    manifest_from_object,
    selector_from_query,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from topospread_client import Client
    from topospread_proto.kubernetes.v1.kubernetes_pb2 import LabelSelector
    from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject

_PAGE_SIZE: Final = 1000


class _Page(Protocol):
    @property
    def next_page_token(self) -> str: ...


_P = TypeVar("_P", bound=_Page)


@click.command("get", short_help="Show nodes, pods or workloads.")
@click.argument("what", metavar="KIND|KIND/NAME", shell_complete=complete_kinds)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("-n", "--namespace", metavar="NAME", help="Only this namespace; with names: default.")
@all_namespaces_option
@click.option("-l", "--selector", metavar="QUERY", help="Only these labels, as kubectl takes them.")
@click.option("--show-labels", is_flag=True, help="Add a column with all labels to the table.")
@click.option(
    "-L", "--label-columns", metavar="KEY,…", help="Add a column for each of these labels."
)
@click.option("--no-headers", is_flag=True, help="Leave the table's headings out.")
@click.option(
    "-w", "--watch", is_flag=True, help="Go on until Ctrl-C with objects that change, as kubectl."
)
@from_option
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
    show_labels: bool,
    label_columns: str | None,
    no_headers: bool,
    watch: bool,
) -> int:
    """Show nodes, pods or workloads as they are kept: trimmed to what matters to spreading.

    KIND is nodes, pods, services, replicationcontrollers, replicasets, statefulsets, or workloads
    for the last four; or reservations, for the places that are held for pods; or constraints, for
    how the pods of each are spread. With names, only these: KIND NAME..., KIND NAMESPACE/NAME...,
    or KIND/NAME and KIND/NAMESPACE/NAME. A constraint's name is its id: alone, it is described
    with its domains, their nodes, and its pods.
    """
    check_all_namespaces(all_namespaces=all_namespaces, namespace=namespace)
    if is_constraint(what.partition("/")[0]):
        if watch:
            raise click.UsageError("`report --watch` shows the changes of constraints")
        if show_labels or label_columns:
            raise click.UsageError("constraints have no labels: leave --show-labels and -L out")
        return _get_constraints(
            options, constraint_ids(what, names), namespace, selector, headings=not no_headers
        )
    by_name = bool(names) or "/" in what
    if all_namespaces and by_name:
        raise click.UsageError("names are of one namespace: leave -A out, or the names")
    if by_name and selector:
        raise click.UsageError("give names or --selector, not both")
    named = objects_named(what, names, namespace, (*STORED, RESERVATION)) if by_name else []
    labels = selector_from_query(selector, "--selector") if selector else None
    keys = [key for key in (label_columns or "").split(",") if key]
    columns = Columns(options.wide, show_labels, keys, headings=not no_headers)
    reservations = [PodReference(e.name, e.namespace) for e in named if e.kind == RESERVATION]
    if reservations or (not named and is_reservation(what)):
        if len(reservations) < len(named):
            raise click.UsageError("reservations are listed apart from objects: ask for them alone")
        if watch:
            raise click.UsageError("`watch reservations` shows the changes of reservations")
        return _get_reservations(options, reservations, namespace, labels, columns)
    kinds = () if named else kinds_named(what)
    if watch:
        check_changes(options)
    with options.client() as client:
        found, revision = _objects(client, kinds, named, namespace, labels)
        if watch:
            watched = {*kinds, *(each.stored_kind for each in named)}
            changes = client.watch_objects(kinds=list(watched), revision=revision)
            is_shown = _filter(named, namespace, labels)
            object_changes.follow(found, changes, is_shown, options, columns)
            return DONE
    if options.output == "name":
        for kind, each in found:
            output.echo(object_changes.path_name(kind, each))
    elif options.output != "table":
        manifests = [manifest_from_object(each) for _, each in found]
        one = manifests[0] if len(named) == 1 else None
        # As kubectl writes it: a list that was cut has no kind.
        items = {"apiVersion": "v1", "revision": revision, "items": manifests, "kind": "List"}
        output.dump(one or items, options.output)
    elif found:
        print_objects(found, columns)
    else:
        output.warn(f"no {' or '.join(kind.label.lower() + 's' for kind in kinds)} found")
    return DONE


def _objects(
    client: Client,
    kinds: Sequence[Kind],
    named: Sequence[ObjectName],
    namespace: str | None,
    labels: LabelSelector | None,
) -> tuple[Sequence[tuple[Kind, ClusterObject]], str]:
    """Objects, and the revision of the first answer; those of another kind may be newer."""
    found: list[tuple[Kind, ClusterObject]] = []
    revisions: list[str] = []
    for name in named:
        kind = name.stored_kind
        answer = client.get_object(kind, name.name, namespace=name.namespace)
        found.append((kind, answer.object))
        revisions.append(answer.revision)
    for kind in kinds:
        space = None if kind is Kind.NODE else namespace
        ask = partial(client.list_objects_page, kind, namespace=space, label_selector=labels)
        for page in _pages(ask):
            found += [(kind, each) for each in page.objects]
            revisions.append(page.revision)
    return found, revisions[0]


def _filter(
    named: Sequence[ObjectName], namespace: str | None, labels: LabelSelector | None
) -> Callable[[Kind, ClusterObject], bool]:
    """Whether an object is one of those that are asked for, as a server chooses them for a list."""
    from topospread.codec.pods import selector_from_proto
    from topospread.kube.selectors import EVERYTHING, compile_selector

    selector = EVERYTHING if labels is None else compile_selector(selector_from_proto(labels))

    def is_shown(kind: Kind, each: ClusterObject) -> bool:
        metadata = getattr(each, kind.field).metadata
        if named:
            return ObjectName(kind.label, metadata.namespace or None, metadata.name) in named
        elsewhere = kind is not Kind.NODE and namespace and metadata.namespace != namespace
        return not elsewhere and selector.matches(dict(metadata.labels))

    return is_shown


def _get_reservations(
    options: ClientOptions,
    named: Sequence[PodReference],
    namespace: str | None,
    labels: LabelSelector | None,
    columns: Columns,
) -> int:
    with options.client() as client:
        if named:
            answers = [client.get_reservation(pod) for pod in named]
            found, revision = [each.reservation for each in answers], answers[0].revision
        else:
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
    elif found:
        print_reservations(found, columns)
    else:
        output.warn("no reservations found")
    return DONE


def _get_constraints(
    options: ClientOptions,
    ids: Sequence[str],
    namespace: str | None,
    selector: str | None,
    *,
    headings: bool,
) -> int:
    newest = Consistency(fully_consistent=True)
    with options.client() as client:
        if ids:
            if selector:
                raise click.UsageError("give ids or --selector, not both")
            described = [client.get_constraint(each, consistency=newest) for each in ids]
            constraint_details.show(described, options.output, options.cluster)
            return DONE
        labels = selector_from_query(selector, "--selector") if selector else None
        wanted = Wanted(namespace, selector=labels, order=ConstraintOrder.NAME)
        found = listed(client, wanted, newest)
    if options.output != "table" or options.wide:
        constraints.show(found, wanted, options, headings=headings)
    elif found.constraints:
        constraints.print_ids(found.constraints, headings=headings)
    else:
        constraints.warn_of_none(found, wanted)
    return DONE


def _pages(ask: Callable[..., _P]) -> Iterator[_P]:
    """All pages of a list, each of which `ask` requests by its ``page_token``."""
    token: str | None = None
    while token != "":
        page = ask(page_token=token, page_size=_PAGE_SIZE)
        yield page
        token = page.next_page_token
