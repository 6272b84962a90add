"""`topospread evaluate`: where may these pods go, and where should they."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from topospread.cli import judgements, printing
from topospread.cli.complaints import DONE, NO_NODE_FITS, Refusals
from topospread.cli.inputs import input_options
from topospread.cli.options import (
    Options,
    consistency_of,
    judging_options,
    output_option,
    pass_options,
    server_options,
)
from topospread.cli.questions import questions_of
from topospread.cli.rules import rules_options, settings_of
from topospread_client import Consistency, InvalidRequest, NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.cli.subjects import Question
    from topospread_client import Client, Settings


@click.command("evaluate", short_help="Judge pods: where may they go?")
@click.argument("stored", nargs=-1, metavar="[NAMESPACE/NAME]...")
@input_options(required=False)
@click.option(
    "--top", type=click.IntRange(1, 1000), default=5, show_default=True, help="Best nodes to name."
)
@rules_options
@judging_options
@server_options
@output_option
@pass_options
def command(
    options: Options,
    stored: Sequence[str],
    paths: Sequence[str],
    recursive: bool,
    namespace: str | None,
    top: int,
    args_file: str | None,
    profile: str | None,
    gates: Sequence[str],
    no_validate: bool,
    freshness: str,
) -> int:
    """Judge pods, from files or by name in the state: which nodes pass, and which are best.

    Files may hold pods, and workloads for the pod they would make. The exit code is 1 when a pod
    fits nowhere.
    """
    questions = questions_of(
        stored, paths, recursive=recursive, namespace=namespace, validate=not no_validate
    )
    settings = settings_of(args_file, profile, gates)
    consistency = consistency_of(freshness)
    found: list[judgements.Judgement] = []
    refusals = Refusals()
    with options.client() as client, printing.progress("evaluating") as progress:
        for done, question in enumerate(questions, start=1):
            try:
                found.append(_judge(client, question, top, settings, consistency))
            except (InvalidRequest, NotFound) as error:
                refusals.add(question, error)
            progress(done, len(questions))
    if found:
        judgements.show(found, options.output, options.cluster)
    refusals.end()
    return DONE if all(judgement.fits for judgement in found) else NO_NODE_FITS


def _judge(
    client: Client,
    question: Question,
    top: int,
    settings: Settings | None,
    consistency: Consistency | None,
) -> judgements.Judgement:
    evaluation = client.evaluate_pod(
        question.pod,
        top_k=top,
        settings=settings,
        consistency=consistency,
        validation=question.validation,
    )
    counted = client.pre_filter(
        question.pod,
        settings=settings,
        consistency=Consistency(at_least_as_fresh=evaluation.revision),
        traceparent=evaluation.traceparent,
    )
    return judgements.Judgement(question, evaluation, counted)
