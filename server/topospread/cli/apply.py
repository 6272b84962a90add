"""`topospread apply`: write objects to a cluster's state."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

import click

from topospread.cli import documents, objects, printing, steps
from topospread.cli.complaints import DONE, MAX_LINES
from topospread.cli.inputs import input_options
from topospread.cli.kinds import path_of
from topospread.cli.options import Options, output_option, pass_options, server_options
from topospread_client.answers import Kind, ObjectResult, Outcome, Replaced, Written
from topospread_client.requests import kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topospread_proto.v1.cluster_state_pb2 import Object

_OUTCOMES: Final = (Outcome.CREATED, Outcome.UPDATED, Outcome.UNCHANGED, Outcome.IGNORED_STALE)
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
        _print_replaced(_replace(options, found, force=force), options.output)
        return DONE
    with options.client() as client, steps.told("applying", "written") as progress:
        written = client.apply([made for _, made in found.kept], force=force, progress=progress)
    _print_written(written, options.output, found.skipped)
    _say_warnings(written.results)
    stale = written.counts().get(Outcome.IGNORED_STALE, 0)
    if stale:
        printing.note(f"{stale} older than what is stored: --force writes them all the same")
    return DONE


def _replace(options: Options, found: objects.Objects, *, force: bool) -> dict[Kind, Replaced]:
    by_kind: dict[Kind, list[Object]] = {}
    for _, made in found.kept:
        kind = kind_of(made)
        if kind is not None:
            by_kind.setdefault(kind, []).append(made)
    answers: dict[Kind, Replaced] = {}
    telling = steps.told("replacing", "replaced", unit="kinds", step=1)
    with options.client() as client, telling as progress:
        for kind in sorted(by_kind):
            answers[kind] = client.replace(kind, by_kind[kind], force=force)
            progress(len(answers), len(by_kind))
    return answers


def _print_written(written: Written, form: str, skipped: Mapping[str, int]) -> None:
    if form == "table":
        counted = Counter((result.kind, result.outcome) for result in written.results)
        kinds = sorted({kind for kind, _ in counted})
        rows = [[kind.label, *(counted[kind, outcome] for outcome in _OUTCOMES)] for kind in kinds]
        printing.table(["KIND", *(f"#{outcome.label.upper()}" for outcome in _OUTCOMES)], rows)
        printing.fields([("revision", written.revision), ("trace", written.trace_id)])
    elif form == "name":
        for result in written.results:
            path = path_of(result.kind, result.namespace, result.name)
            printing.say(f"{path} {result.outcome.label}")
    else:
        results = [_structure(result) for result in written.results]
        printing.structure(
            {
                "revision": written.revision,
                "traceId": written.trace_id,
                "results": results,
                "skipped": dict(skipped),
            },
            form,
        )


def _structure(result: ObjectResult) -> dict[str, object]:
    return {
        "kind": result.kind.label,
        "namespace": result.namespace,
        "name": result.name,
        "outcome": result.outcome.label,
        "warnings": list(result.warnings),
    }


def _say_warnings(results: Sequence[ObjectResult]) -> None:
    said = [
        f"warning: {path_of(result.kind, result.namespace, result.name)}: {warning}"
        for result in results
        for warning in result.warnings
    ]
    for text in said[:MAX_LINES]:
        printing.note(text)
    if len(said) > MAX_LINES:
        printing.note(f"… and {len(said) - MAX_LINES} more warnings")


def _print_replaced(answers: Mapping[Kind, Replaced], form: str) -> None:
    rows = {
        kind: {
            "created": answer.created,
            "updated": answer.updated,
            "unchanged": answer.unchanged,
            "ignored stale": answer.ignored_stale,
            "deleted": answer.deleted,
        }
        for kind, answer in answers.items()
    }
    revision = answers[max(answers)].revision
    if form == "table":
        headings = [f"#{name.upper()}" for name in next(iter(rows.values()))]
        cells = [[kind.label, *row.values()] for kind, row in rows.items()]
        printing.table(["KIND", *headings], cells)
        printing.fields([("revision", revision)])
    elif form == "name":
        for kind in rows:
            printing.say(kind.label.lower())
    else:
        kinds = {kind.label: row for kind, row in rows.items()}
        printing.structure({"revision": revision, "kinds": kinds}, form)
    for kind, answer in answers.items():
        for warning in answer.warnings:
            printing.note(f"warning: {kind.label}: {warning}")
