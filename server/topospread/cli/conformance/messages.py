"""The message on a pod that fits nowhere, for recorded cases and for given verdicts."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from topospread.cli.complaints import BadInput
from topospread.cli.conformance.cases import Case, Difference, Result
from topospread.cli.conformance.comparing import differences
from topospread.cli.conformance.decisions import what_ifs
from topospread.cli.conformance.recordings import Shape, records
from topospread.cli.conformance.rules import settings_of
from topospread.kube.fit_message import fit_message
from topospread_client import Consistency, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from topospread.cli.conformance.cases import Cluster, Ground
    from topospread.cli.conformance.recordings import Record

_SCHEDULER_ERROR: Final = "SchedulerError"


class Named:
    """Recorded cases by name, looked up in the files that may hold them.

    Files are read when a name is asked for that is in none of those read so far.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self._unread = list(paths)
        self._found: dict[str, tuple[Cluster, Mapping[str, Any]]] = {}

    def __getitem__(self, name: str) -> tuple[Cluster, Mapping[str, Any]]:
        """The cluster and the record of a case.

        Raises:
            BadInput: no file has it.
        """
        while name not in self._found and self._unread:
            path = self._unread.pop(0)
            for record in records(path):
                self._remember(record)
        if name not in self._found:
            raise BadInput(f"the case {name!r} is in no file here: name its file with --cases")
        return self._found[name]

    def _remember(self, record: Record) -> None:
        content = record.content
        if record.shape is Shape.DECISION:
            self._found[content["name"]] = (content["cluster"], content)
        elif record.shape is Shape.CLUSTER:
            for incoming in content["incoming"]:
                name = f"{content['name']}/{incoming['name']}"
                self._found[name] = (content["cluster"], incoming)


def files_with_cases(beside: Path) -> Iterator[Path]:
    """Where recordings usually lie: beside a file, and in a folder ``clusters`` near it."""
    folder = beside.resolve().parent
    yield from sorted(folder.glob("decisions*.jsonl*"))
    for near in (folder, folder / "clusters", folder.parent / "clusters"):
        yield from sorted(near.glob("big-*.json*"))


def fit_error_case(record: Record, named: Named) -> Case:
    """A case of fiterrors.jsonl: the condition of a pod of another recording."""
    content = record.content
    cluster, decision = named[content["case"]]
    ask = partial(_condition, content, decision)
    return Case(content["case"], record.source, cluster, ask)


def _condition(
    record: Mapping[str, Any], decision: Mapping[str, Any], ground: Ground
) -> Sequence[Difference]:
    add, remove = what_ifs(decision)
    try:
        evaluation = ground.client.evaluate_pod(
            decision["pod"],
            add_pods=add,
            remove_pods=remove,
            settings=settings_of(decision),
            consistency=Consistency(at_least_as_fresh=ground.revision),
        )
    except InvalidRequest as error:
        return [Difference("request", "accepted", f"refused: {error}")]
    wanted = {"reason": record["reason"], "message": record["message"]}
    got = {"reason": evaluation.reason, "message": evaluation.message}
    if record["reason"] == _SCHEDULER_ERROR and evaluation.message:
        got["message"] = wanted["message"]  # the text is the parser's own: its presence counts
    return differences(wanted, got)


def fit_counts_result(record: Record) -> Result:
    """A case of fitcounts.jsonl: so many nodes with such a verdict, other plugins' included.

    No call takes verdicts of other plugins: this asks the function behind EvaluatePod's message.
    """
    content = record.content
    counts: Counter[str] = Counter()
    for status in content["statuses"]:
        for reason in status["reasons"]:
            counts[reason] += status["nodes"]
    nodes = sum(status["nodes"] for status in content["statuses"])
    got = {"message": fit_message(nodes, counts)}
    found = differences({"message": content["message"]}, got)
    return Result(content["name"], record.source, found)
