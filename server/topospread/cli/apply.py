"""`topospread apply`: write objects to a cluster's state."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

import click

from topospread.cli import documents, objects, printing, steps, structures
from topospread.cli.complaints import DONE, MAX_LINES
from topospread.cli.delete import path_of_result, show_results
from topospread.cli.inputs import input_options
from topospread.cli.options import Options, output_option, pass_options, server_options
from topospread_client import Kind, ObjectOutcome, kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topospread_client import ApplyObjectsResponse, ObjectResult, ReplaceObjectsResponse
    from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject

_OUTCOMES: Final = (
    ObjectOutcome.CREATED,
    ObjectOutcome.UPDATED,
    ObjectOutcome.UNCHANGED,
    ObjectOutcome.IGNORED_STALE,
)
_COUNTS: Final = (
    "created_count",
    "updated_count",
    "unchanged_count",
    "ignored_stale_count",
    "deleted_count",
)
_LEFT_OUT: Final = "kinds that spreading does not look at"


@click.command("apply", short_help="Write objects to the state.")
@input_options(required=True)
@click.option("--force", is_flag=True, help="Write also what is older than the stored version.")
@click.option(
    "--replace",
    is_flag=True,
    help="Make the input the full content of each kind in it: what it lacks is removed.",
)
@server_options
@output_option
@pass_options
def command(
    options: Options,
    paths: Sequence[str],
    recursive: bool,
    namespace: str | None,
    force: bool,
    replace: bool,
) -> int:
    """Write nodes, pods and workloads from files to the cluster's state.

    Reads YAML and JSON as kubectl prints them or people write them: several documents, List kinds,
    directories, and - for standard input. Other kinds are counted and named as skipped.

    With --replace, input that may have been cut is refused: a page of a longer list, a file that
    ends within a line, and what comes through a pipe and does not show its own end, as one value of
    JSON, a List of kubectl or a last line `...` do.
    """
    try:
        # A bar would be drawn over what somebody types.
        typed = documents.STDIN in paths and sys.stdin.isatty()
        with nullcontext() if typed else printing.progress("reading"):
            manifests = documents.read(paths, recursive=recursive, whole=replace)
            found = objects.to_keep(manifests, namespace)
            del manifests
    except KeyboardInterrupt:
        printing.note("nothing is written: the input was still being read")
        raise
    objects.say_skipped(found.skipped, _LEFT_OUT)
    if not found.kept:
        printing.note("nothing to apply")
        return DONE
    if replace:
        _print_replaced(_replace(options, found, force=force), options)
        return DONE
    with options.client() as client, steps.told("applying", "written") as progress:
        written = client.apply_objects(
            [made for _, made in found.kept], force=force, progress=progress
        )
    _print_written(written, options, found.skipped)
    _say_warnings(written.results)
    stale = written.counts().get(ObjectOutcome.IGNORED_STALE, 0)
    if stale:
        printing.note(f"{stale} older than what is stored: --force writes them all the same")
    return DONE


def _replace(
    options: Options, found: objects.Objects, *, force: bool
) -> dict[Kind, ReplaceObjectsResponse]:
    by_kind: dict[Kind, list[ClusterObject]] = {}
    for _, made in found.kept:
        kind = kind_of(made)
        if kind is not None:
            by_kind.setdefault(kind, []).append(made)
    answers: dict[Kind, ReplaceObjectsResponse] = {}
    telling = steps.told("replacing", "replaced", unit="kinds")
    with options.client() as client, telling as progress:
        for kind in sorted(by_kind, key=list(Kind).index):
            answers[kind] = client.replace_objects(kind, by_kind[kind], force=force)
            progress(len(answers), len(by_kind))
    return answers


def _print_written(
    written: ApplyObjectsResponse, options: Options, skipped: Mapping[str, int]
) -> None:
    if options.output == "table":
        counted = Counter((result.kind, result.outcome) for result in written.results)
        there = {kind for kind, _ in counted}
        rows = [
            [kind.label, *(counted[kind, outcome] for outcome in _OUTCOMES)]
            for kind in Kind
            if kind in there
        ]
        columns = [f"#{structures.words(outcome).upper()}" for outcome in _OUTCOMES]
        printing.table(["KIND", *columns], rows)
        printing.fields([("revision", written.revision), ("trace", written.trace_id)])
    elif options.output == "name":
        for result in written.results:
            printing.say(f"{path_of_result(result)} {structures.words(result.outcome)}")
    else:
        left_out = [{"kind": kind, "count": count} for kind, count in skipped.items()]
        show_results(written, options, skipped=left_out)


def _say_warnings(results: Sequence[ObjectResult]) -> None:
    said = [
        f"warning: {path_of_result(result)}: {warning}"
        for result in results
        for warning in result.warnings
    ]
    for text in said[:MAX_LINES]:
        printing.note(text)
    if len(said) > MAX_LINES:
        printing.note(f"… and {len(said) - MAX_LINES} more warnings")


def _print_replaced(answers: Mapping[Kind, ReplaceObjectsResponse], options: Options) -> None:
    revision = answers[list(answers)[-1]].revision
    if options.output == "table":
        columns = [f"#{structures.words(name.removesuffix('_count')).upper()}" for name in _COUNTS]
        rows = [
            [kind.label, *(getattr(answer, name) for name in _COUNTS)]
            for kind, answer in answers.items()
        ]
        printing.table(["KIND", *columns], rows)
        printing.fields([("revision", revision)])
    elif options.output == "name":
        for kind in answers:
            printing.say(kind.label.lower())
    else:
        items = [{"kind": kind, **structures.plain(answer)} for kind, answer in answers.items()]
        structures.show("ReplacementList", options.output, cluster=options.cluster, items=items)
    for kind, answer in answers.items():
        for warning in answer.warnings:
            printing.note(f"warning: {kind.label}: {warning}")
