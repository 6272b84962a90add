"""`topospread explain`: why pods fit where they do, and what would let them in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from topospread.cli import output
from topospread.cli.errors import DONE, NO_NODE_FITS, CallErrors
from topospread.cli.kinds import OWNERS, POD, RESERVATION, ObjectName, parse_name
from topospread.cli.manifest_objects import PodRequest, named_request, pod_requests
from topospread.cli.options import ClientOptions, output_option, pass_options, server_options
from topospread.cli.render import explanation
from topospread.cli.render import pending as pending_pods
from topospread.cli.request_options import (
    FITS,
    all_namespaces_option,
    check_all_namespaces,
    consistency_of,
    consistency_option,
    fit_option,
    input_options,
    rules_options,
    settings_of,
    validation_option,
)
from topospread.cli.state_source import from_option
from topospread.cli.workloads import StatePods
from topospread_client import ErrorReason, InvalidRequest, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topospread.cli.field_validation import FieldValidation


@click.command("explain", short_help="Explain where pods may go, by constraint and domain.")
@click.argument("stored", nargs=-1, metavar="[NAME]...")
@input_options(required=False)
@fit_option
@click.option(
    "--domains",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    help="Domains to list of each constraint: those with the fewest pods and with the most.",
)
@click.option(
    "--pending", is_flag=True, help="All pods that wait for a node, by workload and reason."
)
@all_namespaces_option
@click.option("--no-headers", is_flag=True, help="With --pending: print the table's rows alone.")
@rules_options
@validation_option
@consistency_option
@from_option
@server_options
@output_option
@pass_options
def command(
    options: ClientOptions,
    stored: Sequence[str],
    paths: Sequence[str],
    recursive: bool,
    namespace: str | None,
    fit: str,
    domains: int,
    pending: bool,
    all_namespaces: bool,
    no_headers: bool,
    args_file: str | None,
    profile: str | None,
    gates: Sequence[str],
    validation: FieldValidation,
    consistency: str,
) -> int:
    """Explain pods, from files or by name in the state, or the next replica of a workload.

    NAME is that of a pod, or of a workload: deploy/web, KIND/NAMESPACE/NAME, or the name alone
    where no pod has it. Its newest pod in the state shows what the next one is like.

    For each constraint and domain: the pods and nodes that count, the skew if the pod came, who
    holds the minimum and why, and the verdict. For a pod that fits nowhere: what would let it in,
    each tried out by judging it again. The exit code is 1 when a pod fits nowhere.

    With --pending, all pending pods of the state (with -n, of one namespace): how many of each
    workload, kube-scheduler's message, and what would let the first of them in.
    """
    check_all_namespaces(all_namespaces=all_namespaces, namespace=namespace)
    if pending and (stored or paths):
        raise click.UsageError("--pending is of all pending pods: leave names and -f out")
    if all_namespaces and not pending:
        raise click.UsageError("-A goes with --pending; others are given by name or with -f")
    if no_headers and not pending:
        raise click.UsageError("--no-headers goes with --pending: an explanation is no table")
    if options.output == "name" and not pending:
        raise click.UsageError("-o name: an explanation is no name: use table, json or yaml")
    named = [_candidates(text, namespace) for text in stored]
    asked: list[PodRequest | Sequence[ObjectName]] = [*named]
    if paths or not (stored or pending):
        asked += pod_requests(
            [], paths, recursive=recursive, namespace=namespace, validation=validation
        )
    settings = settings_of(args_file, profile, gates)
    freshness = consistency_of(consistency)
    found: list[explanation.ExplainedPod] = []
    errors = CallErrors()
    with options.client() as client:
        state = StatePods(client, freshness)

        def explained(request: PodRequest) -> explanation.ExplainedPod:
            answer = client.explain_pod(
                request.pod,
                fit=FITS[fit],
                domain_limit=domains,
                settings=settings,
                consistency=freshness,
                validation=request.validation,
            )
            return explanation.ExplainedPod(request, answer)

        if pending:
            waiting = pending_pods.find(
                state,
                namespace,
                lambda name: explained(named_request(name)).answer.explanation,
            )
            pending_pods.show(waiting, options.output, options.cluster, headings=not no_headers)
            return waiting.exit_code
        with output.progress("explaining") as progress:
            for done, each in enumerate(asked, start=1):
                request = each if isinstance(each, PodRequest) else named_request(each[-1])
                try:
                    if isinstance(each, PodRequest):
                        found.append(explained(each))
                    else:
                        found.append(_explain_named(each, state, explained))
                except (InvalidRequest, NotFound) as error:
                    errors.add(error, request.title, request.subject)
                progress(done, len(asked))
    if found:
        explanation.show(found, options.output, options.cluster)
    errors.raise_all()
    return DONE if all(each.fits for each in found) else NO_NODE_FITS


def _candidates(text: str, namespace: str | None) -> Sequence[ObjectName]:
    """What a name may mean, in the order of trial: ``jobs/x`` is a pod there before a Job."""
    name = parse_name(text, namespace, (POD, RESERVATION, *OWNERS), POD)
    word, slash, rest = text.partition("/")
    if name.kind in OWNERS and slash and "/" not in rest and word == f"{name.kind.lower()}s":
        return ObjectName(POD, word, rest), name
    return (name,)


def _explain_named(
    candidates: Sequence[ObjectName],
    state: StatePods,
    explained: Callable[[PodRequest], explanation.ExplainedPod],
) -> explanation.ExplainedPod:
    """Explain a pod of the state, or the next replica of the workload that is called so.

    Raises:
        NotFound: there is neither; the message has names that are like it.
    """
    for name in candidates:
        if name.kind in OWNERS:
            return explained(state.next_replica(name))
        try:
            return explained(named_request(name))
        except NotFound as error:
            if error.reason != ErrorReason.POD_NOT_FOUND:
                raise
    return explained(state.workload_named(candidates[-1]))
