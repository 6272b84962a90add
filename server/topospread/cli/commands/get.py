"""`topospread get`: objects of a cluster's state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from topospread.cli import documents, output
from topospread.cli.errors import DONE
from topospread.cli.kinds import (
    CLUSTER_SCOPED,
    NUMBERS,
    RESERVATION,
    STORED,
    ObjectName,
    complete_kinds,
    content_of,
    is_constraint,
    is_reservation,
    labels_named,
    object_name,
    objects_named,
    plural,
    pod_path,
)
from topospread.cli.options import ClientOptions, pages, server_verb
from topospread.cli.output import Column
from topospread.cli.render import constraints
from topospread.cli.render.constraint_lists import constraint_ids, listed
from topospread.cli.render.constraints import owner_text
from topospread.cli.render.explanation import constraint_text, finding_label, print_domains
from topospread.cli.render.objects import ObjectTables, follow
from topospread.cli.request_options import all_namespaces_option
from topospread.cli.state_source import check_changes, from_option
from topospread.wording import counted
from topospread_client import selector_from_query
from topospread_proto.v1 import cluster_state_service_pb2 as pb
from topospread_proto.v1 import inspector_service_pb2 as inspector
from topospread_proto.v1 import placement_service_pb2 as placement
from topospread_proto.v1.common_pb2 import Consistency
from topospread_proto.v1.inspector_service_pb2 import SpreadState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topospread.cli.options import ApiCaller
    from topospread_proto.kubernetes.v1.kubernetes_pb2 import LabelSelector
    from topospread_proto.v1.common_pb2 import SpreadConstraint
    from topospread_proto.v1.inspector_service_pb2 import ConstraintStatus, GetConstraintResponse


_PAGE_SIZE: Final = 1000


@click.command("get", short_help="Show nodes, pods, workloads or volumes.")
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
@server_verb
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
    """Show nodes, pods, workloads or volumes as they are kept: trimmed to what answers look at.

    KIND is nodes, pods, services, replicationcontrollers, replicasets, statefulsets, or workloads
    for the last four; jobs, persistentvolumes, persistentvolumeclaims, storageclasses, csinodes,
    csidrivers, csistoragecapacities, volumeattachments, namespaces, resourceclaims, deviceclasses,
    resourceslices; or reservations, for the places that are held for pods; or constraints, for how
    the pods of each are spread. With names, only these: KIND NAME..., KIND NAMESPACE/NAME..., or
    KIND/NAME and KIND/NAMESPACE/NAME. A constraint's name is its id: alone, it is described with
    its domains, their nodes, and its pods.
    """
    if is_constraint(what.partition("/")[0]):
        if watch:
            raise click.UsageError("`report --watch` shows the changes of constraints")
        if show_labels or label_columns:
            raise click.UsageError("constraints have no labels: leave --show-labels and -L out")
        return _get_constraints(
            options,
            constraint_ids(what, names),
            namespace,
            selector,
            headings=not no_headers,
        )
    by_name = bool(names) or "/" in what
    if all_namespaces and by_name:
        raise click.UsageError("names are of one namespace: leave -A out, or the names")
    if by_name and selector:
        raise click.UsageError("give names or --selector, not both")
    named = objects_named(what, names, namespace, (*STORED, RESERVATION)) if by_name else []
    labels = selector_from_query(selector, "--selector") if selector else None
    keys = [key for key in (label_columns or "").split(",") if key]
    tables = ObjectTables(options.wide, show_labels, keys, headings=not no_headers)
    kinds = () if named else (RESERVATION,) if is_reservation(what) else labels_named(what)
    reservations = RESERVATION in {*kinds, *(each.kind for each in named)}
    if reservations and any(each.kind != RESERVATION for each in named):
        raise click.UsageError("reservations are listed apart from objects: ask for them alone")
    if reservations and watch:
        raise click.UsageError("`watch reservations` shows the changes of reservations")
    if watch:
        check_changes(options)
    with options.client() as client:
        found, revision = _read(client, kinds, named, namespace, labels)
    if watch:
        watched = {NUMBERS[kind] for kind in (*kinds, *(each.kind for each in named))}
        request = pb.WatchObjectsRequest(kinds=watched, revision=revision)
        is_shown = _filter(named, namespace, labels)
        changes = options.watch("WatchObjects", request)
        follow(found, changes, is_shown, options, tables)
    elif options.output == "name":
        for each in found:
            output.echo(object_name(each).path)
    elif options.output == "table":
        tables.print(found)
        if not found:
            output.warn(f"no {' or '.join(f'{plural(kind)}' for kind in kinds)} found")
    elif reservations:
        items = [each.reservation for each in found]
        cluster = options.cluster
        documents.show(
            "ReservationList", options.output, cluster=cluster, revision=revision, items=items
        )
    elif len(named) == 1:
        output.dump(documents.plain(found[0]), options.output)
    else:
        # As kubectl writes it: a list that was cut has no kind.
        whole = {"apiVersion": "v1", "revision": revision, "items": found, "kind": "List"}
        output.dump(documents.plain(whole), options.output)
    return DONE


def _read(
    client: ApiCaller,
    kinds: Sequence[str],
    named: Sequence[ObjectName],
    namespace: str | None,
    labels: LabelSelector | None,
) -> tuple[Sequence[pb.ClusterObject], str]:
    """Objects, and the revision of the first answer; those of another kind may be newer."""
    found: list[pb.ClusterObject] = []
    revisions: list[str] = []
    for name in named:
        if name.kind == RESERVATION:
            answer = client.call("GetReservation", placement.GetReservationRequest(pod=name.pod))
            found.append(pb.ClusterObject(reservation=answer.reservation))
        else:
            answer = client.call(
                "GetObject",
                pb.GetObjectRequest(
                    kind=name.number, namespace=name.namespace or "", name=name.name
                ),
            )
            found.append(answer.object)
        revisions.append(answer.meta.revision)
    for kind in kinds:
        if kind == RESERVATION:
            of_pods = placement.ListReservationsRequest(
                namespace=namespace or "", label_selector=labels, page_size=_PAGE_SIZE
            )
            for page in pages(client, "ListReservations", of_pods):
                found += [pb.ClusterObject(reservation=each) for each in page.reservations]
                revisions.append(page.meta.revision)
            continue
        request = pb.ListObjectsRequest(
            kind=NUMBERS[kind],
            namespace="" if kind in CLUSTER_SCOPED else namespace or "",
            label_selector=labels,
            page_size=_PAGE_SIZE,
        )
        for page in pages(client, "ListObjects", request):
            found += page.objects
            revisions.append(page.meta.revision)
    return found, revisions[0]


def _filter(
    named: Sequence[ObjectName], namespace: str | None, labels: LabelSelector | None
) -> Callable[[pb.ClusterObject], bool]:
    """Whether an object is one of those that are asked for, as a server chooses them for a list."""
    from topospread.codec.pods import selector_from_proto
    from topospread.kube.selectors import EVERYTHING, compile_selector

    selector = EVERYTHING if labels is None else compile_selector(selector_from_proto(labels))

    def is_shown(each: pb.ClusterObject) -> bool:
        name = object_name(each)
        if named:
            return name in named
        elsewhere = name.kind not in CLUSTER_SCOPED and namespace and name.namespace != namespace
        return not elsewhere and selector.matches(dict(content_of(each).metadata.labels))

    return is_shown


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
            described = [
                client.call(
                    "GetConstraint",
                    inspector.GetConstraintRequest(constraint_id=each, consistency=newest),
                )
                for each in ids
            ]
            documents.present(
                options.output,
                "ConstraintDescriptionList",
                lambda: output.separated(described, _print),
                (constraints.path_of(each.constraint.constraint_id) for each in described),
                cluster=options.cluster,
                items=described,
            )
            return DONE
        wanted = inspector.ConstraintFilter(
            namespace=namespace or "",
            label_selector=selector_from_query(selector, "--selector") if selector else None,
        )
        request = inspector.ListConstraintsRequest(
            filter=wanted, order=inspector.CONSTRAINT_ORDER_NAME, consistency=newest
        )
        found = listed(client, request)
    if options.output != "table" or options.wide:
        constraints.show(found, wanted, options, headings=headings)
    elif found.constraints:
        constraints.print_ids(found.constraints, headings=headings)
    else:
        constraints.warn_of_none(found, wanted)
    return DONE


def _print(found: GetConstraintResponse) -> None:
    status = found.constraint
    constraint = status.constraint
    click.secho(constraint_text(constraint), bold=True)
    output.fields(
        [
            ("id", status.constraint_id),
            ("of", f"{constraint.namespace} {owner_text(status)}".rstrip()),
            ("defaults", "the profile's" if status.defaulted else ""),
            ("counts", _counts_text(constraint)),
            ("whose", constraints.counted_text(status.counted)),
            ("state", _state_text(status)),
            ("skew", f"{status.skew}, with the minimum {status.global_minimum}"),
            ("pods", _pods_text(status)),
            ("waiting", constraints.waiting_text(status)),
            ("domains", _domains_text(status)),
            *(("finding", f"{finding_label(each)}: {each.text}") for each in status.findings),
            ("not looked at", ", ".join(status.not_modelled)),
        ]
    )
    if found.domains:
        click.echo()
    print_domains(
        constraint,
        status.minimum_reason,
        [each.domain for each in found.domains],
        found.leading_domain_count,
        found.unlisted_domain_count,
    )
    _print_nodes(found)
    _print_pods(found)


def _counts_text(constraint: SpreadConstraint) -> str:
    if not constraint.HasField("label_selector"):
        return "no pods, for it has no labelSelector"
    selects_all = constraint.selector_text == "<empty>"
    return "all pods of the namespace" if selects_all else f"pods {constraint.selector_text}"


def _state_text(status: ConstraintStatus) -> str:
    """State and why; where a finding is the reason, it stands on a line of its own."""
    state = documents.words(documents.value_name(SpreadState, status.state))
    is_finding = status.message in (each.text for each in status.findings)
    return f"{state}: {status.message}" if status.message and not is_finding else state


def _pods_text(status: ConstraintStatus) -> str:
    text = f"{status.bound_pod_count} on a node, {status.pending_pod_count} waiting"
    blocked = status.blocked_pod_count
    return f"{text}, {blocked} of them for this constraint" if blocked else text


def _domains_text(status: ConstraintStatus) -> str:
    return (
        f"{status.allowed_domain_count} of {status.eligible_domain_count} eligible ones allow the "
        f"next replica; {status.domain_count} in all"
    )


_NODES: Final = (
    Column("NODE", lambda pair: pair[1].node),
    Column("DOMAIN", lambda pair: pair[0].domain.value or '""'),
    Column("#PODS", lambda pair: pair[1].pod_count),
    Column("#HELD", lambda pair: pair[1].reserved_pod_count),
    Column("ELIGIBLE", lambda pair: output.yes_no(pair[1].eligible)),
    Column("USABLE", lambda pair: output.yes_no(pair[1].usable)),
)
_PODS: Final = (
    Column("POD", lambda each: pod_path(each.pod)),
    Column("NODE", lambda each: each.node),
    Column("DOMAIN", lambda each: each.domain or '""' * each.HasField("domain")),
)


def _print_nodes(found: GetConstraintResponse) -> None:
    pairs = [(each, node) for each in found.domains for node in each.nodes if node.pod_count]
    if pairs:
        click.echo()
        output.print_items(_NODES, pairs)


def _print_pods(found: GetConstraintResponse) -> None:
    if found.pods:
        click.echo()
        output.print_items(_PODS, found.pods)
    if found.unlisted_pod_count:
        output.echo(f"... and {counted(found.unlisted_pod_count, 'more pod')}")
