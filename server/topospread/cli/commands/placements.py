"""`topospread place`, `reserve` and `release`: hold nodes for pods, and end what is held."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

import click

from topospread.cli import documents, output
from topospread.cli.errors import BAD_INPUT, DONE, NO_NODE_FITS, raise_failed
from topospread.cli.kinds import (
    POD,
    RESERVATION,
    node_name,
    node_path,
    parse_name,
    reservation_path,
)
from topospread.cli.manifest_objects import PodRequest, pod_requests, refuse_workloads
from topospread.cli.options import MAX_NUMBER, ClientOptions, Seconds, server_verb
from topospread.cli.output import Column
from topospread.cli.pod_calls import ask_about
from topospread.cli.request_options import RequestOptions, input_options, request_options
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import placement_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

_Placed: TypeAlias = "tuple[PodRequest, pb.PlacePodResponse]"

_ttl_option: Final = click.option(
    "--ttl", type=Seconds(0, MAX_NUMBER, min_open=True), help="Seconds to hold the place.  [60]"
)


@click.command("place")
@click.argument("stored", nargs=-1, metavar="[NAME]...")
@input_options(required=False)
@click.option(
    "--candidate", "candidates", multiple=True, metavar="NODE", help="Choose among these nodes."
)
@_ttl_option
@click.option("--seed", default="", metavar="TEXT", help="Orders equal nodes; one for each caller.")
@request_options(
    "fit",
    "settings",
    "validation",
    fit_help="What to ask beside spreading.  [all; with candidates: spread-only]",
)
@server_verb
def place(
    options: ClientOptions,
    stored: Sequence[str],
    paths: Sequence[str],
    recursive: bool,
    namespace: str | None,
    candidates: Sequence[str],
    ttl: float | None,
    seed: str,
    asked: RequestOptions,
) -> int:
    """Choose the best node for pods, one after the other, and hold it until they are bound.

    What is held counts like a bound pod. Placing a pod again renews it. The exit code is 1 when a
    pod fits nowhere.
    """
    requests = pod_requests(
        stored, paths, recursive=recursive, namespace=namespace, validation=asked.validation
    )
    refuse_workloads(requests)
    with options.client() as client:

        def placed(request: PodRequest) -> _Placed:
            question = pb.PlacePodRequest(
                pod=request.source, validation=request.validation, seed=seed
            )
            if candidates:
                question.candidates.names.names.extend(map(node_name, candidates))
            if ttl:
                question.reservation_ttl.FromTimedelta(timedelta(seconds=ttl))
            return request, client.call("PlacePod", asked.fill(question))

        found, failed = ask_about(requests, "placing", placed, lambda request: request)
    if found:
        documents.present(
            options.output,
            "PlacementList",
            lambda: _print_placed(found),
            (node_path(answer.node) for _, answer in found),
            cluster=options.cluster,
            items=(documents.joined(request.subject, answer) for request, answer in found),
        )
    raise_failed(failed)
    return DONE if all(answer.node for _, answer in found) else NO_NODE_FITS


_COLUMNS: Final = (
    Column("POD", lambda pair: pair[0].label),
    Column("NODE", lambda pair: pair[1].node),
    Column("HELD UNTIL", lambda pair: _until(pair[1])),
    Column("NOT LOOKED AT", lambda pair: ", ".join(pair[1].not_modelled)),
)


def _until(answer: pb.PlacePodResponse | pb.ReserveNodeResponse) -> str:
    return "bound" if answer.already_bound else documents.moment(answer.expire_time)


def _print_placed(found: Sequence[_Placed]) -> None:
    output.print_items(_COLUMNS, found)
    for request, answer in found:
        if not answer.node:
            output.echo(f"{request.label}: {answer.message or answer.verdict.reasons[0]}")


@click.command("reserve", short_help="Hold one node for a pod.")
@click.argument("node")
@click.argument("stored", nargs=-1, metavar="[NAME]")
@input_options(required=False)
@_ttl_option
@request_options("settings", "validation")
@server_verb
def reserve(
    options: ClientOptions,
    node: str,
    stored: Sequence[str],
    paths: Sequence[str],
    recursive: bool,
    namespace: str | None,
    ttl: float | None,
    asked: RequestOptions,
) -> int:
    """Hold NODE for a pod until it is bound, if the pod's hard constraints allow it.

    `place` chooses the node itself. The exit code is 1 when the constraints refuse it.
    """
    requests = pod_requests(
        stored, paths, recursive=recursive, namespace=namespace, validation=asked.validation
    )
    refuse_workloads(requests)
    if len(requests) > 1:
        raise click.UsageError(f"one node is held for one pod; here are {len(requests)}")
    (request,) = requests
    question = pb.ReserveNodeRequest(
        pod=request.source, node=node_name(node), validation=request.validation
    )
    if ttl:
        question.reservation_ttl.FromTimedelta(timedelta(seconds=ttl))
    with options.client() as client:
        reserved = client.call("ReserveNode", asked.fill(question))
    documents.present(
        options.output,
        "PlacementList",
        lambda: output.fields(
            [
                ("pod", request.label),
                ("node", reserved.node),
                ("held until", _until(reserved)),
                ("refused", ", ".join(reserved.verdict.reasons)),
                ("not looked at", ", ".join(reserved.not_modelled)),
                ("revision", reserved.meta.revision),
                ("trace", documents.trace_id(reserved)),
            ]
        ),
        [node_path(reserved.node)],
        cluster=options.cluster,
        items=[documents.joined(request.subject, reserved)],
    )
    held = reserved.verdict.code == common_pb2.VERDICT_CODE_SUCCESS
    return DONE if held else NO_NODE_FITS


@click.command("release", short_help="End what is held for pods.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("-n", "--namespace", metavar="NAME", help="Of names that say none.  [default]")
@click.option("--uid", metavar="UID", help="Only what is held for the pod with this uid.")
@click.option("--ignore-not-found", is_flag=True, help="That nothing was held is no mistake.")
@server_verb
def release(
    options: ClientOptions,
    names: Sequence[str],
    namespace: str | None,
    uid: str | None,
    ignore_not_found: bool,
) -> int:
    """End the reservations of pods, so that what `place` held for them counts no more.

    NAME is also NAMESPACE/NAME, pod/NAMESPACE/NAME, or what `get reservations -o name` prints. Pods
    of which nothing was held make the exit code 2.
    """
    typed = [parse_name(text, namespace, (POD, RESERVATION), POD) for text in names]
    # A reservation has the name of its pod.
    pods = list(dict.fromkeys(replace(name, kind=POD) for name in typed))
    if uid and len(pods) > 1:
        raise click.UsageError("--uid is of one pod: name only that")
    released: list[tuple[common_pb2.PodReference, pb.ReleaseReservationResponse]] = []
    with options.client() as client, output.progress("releasing") as progress:
        for done, name in enumerate(pods, start=1):
            pod = common_pb2.PodReference(
                namespace=name.namespace or "", name=name.name, uid=uid or ""
            )
            request = pb.ReleaseReservationRequest(pod=pod)
            released.append((pod, client.call("ReleaseReservation", request)))
            progress(done, len(pods))
    missing = [reservation_path(pod) for pod, each in released if not each.released]
    if options.output in {"json", "yaml"}:
        items = (documents.joined({"pod": pod}, each) for pod, each in released)
        documents.show("ReleaseList", options.output, cluster=options.cluster, items=items)
    else:
        for path in (reservation_path(pod) for pod, _ in released):
            if path in missing:
                output.warn(f"{path}: nothing is held")
            else:
                output.echo(path + " released" * (options.output != "name"))
    return BAD_INPUT if missing and not ignore_not_found else DONE
