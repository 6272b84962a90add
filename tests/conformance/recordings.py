"""Recorded cases: the files that hold them, and how an answer differs from the recorded one.

A file has one JSON object a line, or one large object; gzip or plain. The kind of a record shows in
its members, so files of all kinds may be given together.
"""

from __future__ import annotations

import gzip
import shlex
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import orjson

from tests.conformance.cases import ABSENT, RECORDED, Difference
from tests.conformance.objects import gates_of
from topospread.cli.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from topospread_client import Client


Manifest: TypeAlias = dict[str, Any]
Cluster: TypeAlias = Mapping[str, Sequence[Manifest]]
"""Objects by the name of their list: nodes, pods, services, …"""

MEMBERS: Final[Mapping[Any, str]] = {
    "Node": "nodes",
    "Pod": "pods",
    "Service": "services",
    "ReplicationController": "replicationControllers",
    "ReplicaSet": "replicaSets",
    "StatefulSet": "statefulSets",
}
"""Members of a recorded cluster, by the kind of their objects."""

_GZIP: Final = b"\x1f\x8b"
_MAX_DIFFERENCES: Final = 10
"""Differences shown of one case; a wrong count of one domain may show on thousands of nodes."""


class RecordKind(Enum):
    """The kinds of records, with the members that identify each."""

    CLUSTER = ("cluster", "incoming")
    DECISION = ("cluster", "pod", "expect")
    VALIDATION = ("pod", "expect")
    ARGS = ("args", "expect")
    FIT_ERROR = ("case", "reason", "message")
    FIT_COUNTS = ("statuses", "message")


@dataclass(frozen=True, slots=True)
class Record:
    """One recorded object.

    Attributes:
        kind: what it is a record of.
        content: the object.
        source: where it stands, for example ``decisions.jsonl.gz:17``.
    """

    kind: RecordKind
    content: dict[str, Any]
    source: str


def records(path: Path) -> Iterator[Record]:
    """All records of a file.

    Raises:
        BadInput: the file cannot be read, or something in it is no recorded case.
    """
    content = _content(path)
    try:
        yield _record(orjson.loads(content), str(path))
        return
    except orjson.JSONDecodeError:
        pass  # several objects, one a line
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        source = f"{path}:{number}"
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise BadInput(f"{path}:{number}: not JSON: {error.msg}") from error
        yield _record(value, source)


def _record(value: Any, source: str) -> Record:
    if isinstance(value, dict):
        for kind in RecordKind:
            if all(member in value for member in kind.value):
                if "cluster" in kind.value:
                    value["cluster"] = _by_kind(value["cluster"])
                return Record(kind, value, source)
    kinds = "; ".join(f"{kind.name.lower()}: {', '.join(kind.value)}" for kind in RecordKind)
    raise BadInput(f"{source}: no recorded case: a case has one of these sets of members: {kinds}")


def _by_kind(cluster: Any) -> Any:
    """The objects of a cluster by their kind's list, also of a List as `topospread dump` writes."""
    if not isinstance(cluster, dict) or not isinstance(cluster.get("items"), list):
        return cluster
    found: dict[str, list[Manifest]] = {}
    for each in cluster["items"]:
        if isinstance(each, dict) and (member := MEMBERS.get(each.get("kind"))):
            found.setdefault(member, []).append(each)
    return found


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content.startswith(_GZIP) else content
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file: check the path") from None
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{path}: cannot be read: {error}") from error


class RecordedDecisions:
    """Recorded decisions by name, which records of fit errors refer to.

    A file is read when a name is looked up that is in none of the files read so far.
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
        if record.kind is RecordKind.DECISION:
            self._found[content["name"]] = (content["cluster"], content)
        elif record.kind is RecordKind.CLUSTER:
            for incoming in content["incoming"]:
                name = f"{content['name']}/{incoming['name']}"
                self._found[name] = (content["cluster"], incoming)


def files_with_cases(beside: Path) -> Iterator[Path]:
    """Recordings near a file: beside it, and in a folder ``clusters`` near it."""
    folder = beside.resolve().parent
    yield from sorted(folder.glob("decisions*.jsonl*"))
    for near in (folder, folder / "clusters", folder.parent / "clusters"):
        yield from sorted(near.glob("big-*.json*"))


def settings_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """The args, gates and version of a record as settings of a request.

    Raises:
        ManifestError: args that are no PodTopologySpreadArgs (when the request is made).
    """
    gates = dict(record.get("gates") or {})
    if record.get("mergeRemoved"):
        gates["schedulerMerge"] = False
    return {
        "args": record.get("args") or {},
        "feature_gates": gates_of(gates),
        "kubernetes_version": record.get("kubernetes") or RECORDED,
    }


@dataclass(frozen=True, slots=True)
class LoadedCluster:
    """A server into which the cluster of a case was written.

    Attributes:
        client: connected to the server; its default cluster is the case's.
        revision: one that contains the whole cluster.
        nodes: names of the cluster's nodes.
    """

    client: Client
    revision: str
    nodes: Sequence[str]


@dataclass(frozen=True, slots=True)
class RecordedCase:
    """One recorded answer and how to ask for it again.

    Attributes:
        name: its name in the recording.
        source: where it stands, for example ``decisions.jsonl.gz:17``.
        cluster: what the server must know first.
        ask: asks the server again and returns the differences.
        remark: printed when the case passed; empty prints nothing.
    """

    name: str
    source: str
    cluster: Cluster
    ask: Callable[[LoadedCluster], Sequence[Difference]]
    remark: str = ""

    def run(self, loaded: LoadedCluster) -> CaseResult:
        """Ask the server that has the cluster."""
        return CaseResult(self.name, self.source, self.ask(loaded), self.remark)


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The differences found by one case; without any it passed."""

    name: str
    source: str
    differences: Sequence[Difference]
    remark: str = ""

    @property
    def passed(self) -> bool:
        """Whether every answer was as recorded."""
        return not self.differences


def compare_unordered(member: str, expected: list[str], got: list[str]) -> list[Difference]:
    """The elements that only one of two lists has, whatever their order."""
    missing, extra = Counter(expected) - Counter(got), Counter(got) - Counter(expected)
    found = [Difference(member, text, ABSENT) for text in missing.elements()]
    return [*found, *(Difference(member, ABSENT, text) for text in extra.elements())]


def report_lines(result: CaseResult) -> Iterator[str]:
    """The lines to print: all differences of a case, or the remark of one that passed."""
    if result.passed:
        if result.remark:
            yield f"passed {result.name} {result.remark}"
        return
    path = result.source.rpartition(":")[0] or result.source
    yield f"differs {result.name} ({result.source})"
    for difference in result.differences[:_MAX_DIFFERENCES]:
        yield f"    {difference.member}"
        yield f"        recorded {_json(difference.expected)}"
        yield f"        answered {_json(difference.got)}"
    if len(result.differences) > _MAX_DIFFERENCES:
        yield f"    … and {len(result.differences) - _MAX_DIFFERENCES} more differences"
    command = shlex.join(["python", "-m", "tests.conformance", path, "--case", result.name])
    yield f"    again: {command}"


def _json(value: object) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS).decode()
