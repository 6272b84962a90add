"""`topospread evaluate`: where may these pods go, and where should they."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from topospread.cli import documents, judgements, objects, printing
from topospread.cli.complaints import BAD_INPUT, DONE, NO_NODE_FITS, explained, prefixed
from topospread.cli.inputs import input_options
from topospread.cli.options import (
    Options,
    judging_options,
    output_option,
    pass_options,
    server_options,
)
from topospread.cli.rules import rules_options, settings_of
from topospread_client.errors import InvalidRequest, NotFound
from topospread_client.requests import Consistency

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread_client.client import Client
    from topospread_client.requests import Settings
    from topospread_proto.v1.kubernetes_pb2 import Pod

_LEFT_OUT: Final = "no pod, and nothing that makes pods"


@dataclass(frozen=True, slots=True)
class Question:
    """A pod to judge: how it is asked about, and how it is called in answers.

    Attributes:
        replicas: how many a workload makes; None for a pod.
    """

    pod: Pod | str
    label: str
    source: str
    validate: bool
    replicas: int | None = None


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
    fast: bool,
) -> int:
    """Judge pods, from files or by name in the state: which nodes pass, and which are best.

    Files may hold pods, and workloads for the pod they would make. The exit code is 1 when a pod
    fits nowhere.
    """
    questions = questions_of(
        stored, paths, recursive=recursive, namespace=namespace, validate=not no_validate
    )
    settings = settings_of(args_file, profile, gates)
    consistency = None if fast else Consistency(fully_consistent=True)
    found: list[judgements.Judgement] = []
    refused: list[str] = []
    with options.client() as client, printing.progress("evaluating") as progress:
        for done, question in enumerate(questions, start=1):
            try:
                found.append(_judge(client, question, top, settings, consistency))
            except (InvalidRequest, NotFound) as error:
                where = f"{question.source}: {question.label}: ".removeprefix(": ")
                refused.extend(f"{where}{text}" for text in explained(error))
            progress(done, len(questions))
    if found:
        judgements.show(found, options.output, options.cluster)
    for text in refused:
        printing.note(prefixed(text))
    if refused:
        return BAD_INPUT
    return DONE if all(judgement.fits for judgement in found) else NO_NODE_FITS


def questions_of(
    stored: Sequence[str],
    paths: Sequence[str],
    *,
    recursive: bool,
    namespace: str | None,
    validate: bool,
) -> list[Question]:
    """The pods that were named or are in files.

    Raises:
        UsageError: there are none.
        BadInput: files that cannot be read.
    """
    if not stored and not paths:
        raise click.UsageError("say which pods: -f PATH, or NAMESPACE/NAME of pods in the state")
    # What a cluster already stores is taken as it is: validating it again could refuse it.
    questions = [
        Question(_full_name(name, namespace), f"Pod {_full_name(name, namespace)}", "", False)
        for name in stored
    ]
    if paths:
        manifests = documents.read(paths, recursive=recursive)
        pods, skipped = objects.to_judge(manifests, namespace)
        objects.say_skipped(skipped, _LEFT_OUT)
        questions += [
            Question(
                each.pod,
                each.manifest.label,
                each.manifest.source,
                validate,
                _replicas(each.manifest),
            )
            for each in pods
        ]
    return questions


def _replicas(manifest: documents.Manifest) -> int | None:
    """How many pods a workload makes: what it says, or one as the API server defaults it."""
    if manifest.kind == "Pod":
        return None
    spec = manifest.content.get("spec")
    said = spec.get("replicas", spec.get("parallelism")) if isinstance(spec, dict) else None
    return said if isinstance(said, int) and said >= 0 else 1


def _full_name(name: str, namespace: str | None) -> str:
    return name if "/" in name else f"{namespace or 'default'}/{name}"


def _judge(
    client: Client,
    question: Question,
    top: int,
    settings: Settings | None,
    consistency: Consistency | None,
) -> judgements.Judgement:
    evaluation = client.evaluate(
        question.pod,
        top_k=top,
        settings=settings,
        consistency=consistency,
        validate=question.validate,
    )
    counted = client.pre_filter(
        question.pod,
        settings=settings,
        consistency=Consistency(at_least_as_fresh=evaluation.revision),
        traceparent=evaluation.traceparent,
    )
    return judgements.Judgement(
        label=question.label,
        source=question.source,
        pod=None if isinstance(question.pod, str) else question.pod,
        evaluation=evaluation,
        counted=counted,
    )
