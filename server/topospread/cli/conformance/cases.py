"""What is run: a case, the cluster that it is about, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from topospread_client import Client

Manifest: TypeAlias = dict[str, Any]
Cluster: TypeAlias = Mapping[str, Sequence[Manifest]]
"""Objects by the name of their list: nodes, pods, services, …"""


@dataclass(frozen=True, slots=True)
class Ground:
    """A server with the case's cluster in it.

    Attributes:
        client: connected to the server; its default cluster is the case's.
        revision: contains the whole cluster.
        nodes: names of the cluster's nodes.
    """

    client: Client
    revision: str
    nodes: Sequence[str]


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that was answered otherwise than recorded."""

    member: str
    expected: object
    got: object


@dataclass(frozen=True, slots=True)
class Case:
    """One recorded answer.

    Attributes:
        name: its name in the recording.
        source: where it stands, for example ``decisions.jsonl.gz:17``.
        cluster: what the server must know first.
        ask: asks the server again and returns what differs.
        remark: said when it passed; empty to say nothing.
    """

    name: str
    source: str
    cluster: Cluster
    ask: Callable[[Ground], Sequence[Difference]]
    remark: str = ""

    def run(self, ground: Ground) -> Result:
        """Ask, where the cluster is loaded."""
        return Result(self.name, self.source, self.ask(ground), self.remark)


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a case; it passed if nothing differs."""

    name: str
    source: str
    differences: Sequence[Difference]
    remark: str = ""

    @property
    def passed(self) -> bool:
        """Whether everything was answered as recorded."""
        return not self.differences
