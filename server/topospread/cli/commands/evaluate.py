"""`topospread evaluate`: on which nodes pods may run, and which are best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from topospread.cli import documents, output
from topospread.cli.errors import DONE, NO_NODE_FITS, CallErrors
from topospread.cli.manifest_objects import pod_requests
from topospread.cli.options import ClientOptions, output_option, pass_options, server_options
from topospread.cli.request_options import (
    consistency_of,
    consistency_option,
    input_options,
    rules_options,
    settings_of,
    validation_option,
)
from topospread_client import Consistency, InvalidRequest, NotFound
from topospread_proto.kubernetes.v1.kubernetes_pb2 import Pod

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread.cli.manifest_objects import PodRequest
    from topospread_client import Client, EvaluatePodResponse, PreFilterResponse, Settings

_HARD: Final = "DoNotSchedule"
_CONSTRAINT_COLUMNS: Final = (
    "TOPOLOGY KEY",
    "UNSATISFIABLE",
    "#MAX SKEW",
    "#MIN DOMAINS",
    "#ELIGIBLE DOMAINS",
    "#GLOBAL MINIMUM",
    "SELF MATCH",
)


@dataclass(frozen=True, slots=True)
class _Evaluated:
    """Pod and the answers about it.

    Attributes:
        evaluation: verdicts and best nodes.
        counted: hard constraints with their counts.
    """

    request: PodRequest
    evaluation: EvaluatePodResponse
    counted: PreFilterResponse

    @property
    def fits(self) -> bool:
        """Whether any node is feasible."""
        return self.evaluation.feasible_node_count > 0


@click.command("evaluate", short_help="Judge pods: where may they go?")
@click.argument("stored", nargs=-1, metavar="[NAMESPACE/NAME]...")
@input_options(required=False)
@click.option(
    "--top", type=click.IntRange(1, 1000), default=5, show_default=True, help="Best nodes to name."
)
@rules_options
@validation_option
@consistency_option
@server_options
@output_option
@pass_options
def command(
    options: ClientOptions,
    stored: Sequence[str],
    paths: Sequence[str],
    recursive: bool,
    namespace: str | None,
    top: int,
    args_file: str | None,
    profile: str | None,
    gates: Sequence[str],
    no_validate: bool,
    consistency: str,
) -> int:
    """Judge pods, from files or by name in the state: which nodes pass, and which are best.

    Files may hold pods, and workloads for the pod they would make. The exit code is 1 when a pod
    fits nowhere.
    """
    requests = pod_requests(
        stored, paths, recursive=recursive, namespace=namespace, validate=not no_validate
    )
    settings = settings_of(args_file, profile, gates)
    freshness = consistency_of(consistency)
    found: list[_Evaluated] = []
    errors = CallErrors()
    with options.client() as client, output.progress("evaluating") as progress:
        for done, request in enumerate(requests, start=1):
            try:
                found.append(_evaluate(client, request, top, settings, freshness))
            except (InvalidRequest, NotFound) as error:
                errors.add(error, request.title, request.subject)
            progress(done, len(requests))
    if found:
        _show(found, options)
    errors.raise_all()
    return DONE if all(each.fits for each in found) else NO_NODE_FITS


def _evaluate(
    client: Client,
    request: PodRequest,
    top: int,
    settings: Settings | None,
    consistency: Consistency | None,
) -> _Evaluated:
    evaluation = client.evaluate_pod(
        request.pod,
        top_k=top,
        settings=settings,
        consistency=consistency,
        validation=request.validation,
    )
    counted = client.pre_filter(
        request.pod,
        settings=settings,
        consistency=Consistency(at_least_as_fresh=evaluation.revision),
        traceparent=evaluation.traceparent,
    )
    return _Evaluated(request, evaluation, counted)


def _show(found: Sequence[_Evaluated], options: ClientOptions) -> None:
    if options.output == "table":
        for position, each in enumerate(found):
            if position:
                click.echo()
            _print(each)
    elif options.output == "name":
        for each in found:
            output.echo(each.evaluation.best or output.NONE)
    else:
        items = [
            {
                **documents.plain(each.request.subject),
                "fits": each.fits,
                "constraints": documents.plain(each.counted.constraints),
                **documents.plain(each.evaluation),
            }
            for each in found
        ]
        documents.show("EvaluationList", options.output, cluster=options.cluster, items=items)


def _print(evaluated: _Evaluated) -> None:
    evaluation, request = evaluated.evaluation, evaluated.request
    source = f"  ({request.subject.source})" if request.subject.source else ""
    click.secho(f"{request.label}{source}", bold=True)
    rows = list(_constraint_rows(evaluated))
    if rows:
        output.table(_CONSTRAINT_COLUMNS, rows)
    else:
        output.echo("no hard constraints, and none of its own: defaults may score it")
    click.echo()
    counts = [
        (counted.node_count, counted.verdict.code.label, ", ".join(counted.verdict.reasons))
        for counted in evaluation.verdict_counts
    ]
    output.table(["#NODES", "VERDICT", "REASON"], counts)
    click.echo()
    if evaluation.top_nodes:
        # Without soft constraints PreScore skips: 0 would look like a bad score.
        scored = evaluation.pre_score_verdict.success
        best = [
            (each.node, *((each.normalized, each.raw) if scored else "--"))
            for each in evaluation.top_nodes
        ]
        output.table(["NODE", "#SCORE", "#RAW"], best)
        click.echo()
    output.fields(
        [
            ("fits", f"{evaluation.feasible_node_count} of {evaluation.node_count} nodes"),
            ("message", evaluation.message),
            ("revision", evaluation.revision),
            ("store unreachable for", output.seconds(evaluation.meta.store_unreachable_for)),
            ("trace", evaluation.trace_id),
        ]
    )


def _constraint_rows(evaluated: _Evaluated) -> Iterator[list[object]]:
    """Rows of the hard constraints as the server counts them, then of the pod's own soft ones."""
    for state in evaluated.counted.constraints:
        constraint = state.constraint
        yield [
            constraint.topology_key,
            constraint.when_unsatisfiable,
            constraint.max_skew,
            constraint.min_domains,
            state.eligible_domain_count,
            state.global_minimum,
            "yes" if state.self_match else "no",
        ]
    pod = evaluated.request.pod
    own = pod.spec.topology_spread_constraints if isinstance(pod, Pod) else ()
    for given in own:
        if given.when_unsatisfiable != _HARD:
            yield [given.topology_key, given.when_unsatisfiable, given.max_skew, *"----"]
