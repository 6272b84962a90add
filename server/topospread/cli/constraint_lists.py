"""The constraints that `report` and `get constraints` are asked for: options, and their lists."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click

from topospread.cli.errors import BadInput
from topospread.cli.kinds import is_constraint, kind_label
from topospread_client import ConstraintOrder, SpreadState, WorkloadReference

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread_client import (
        Client,
        Consistency,
        ConstraintStatus,
        ListConstraintsResponse,
        Settings,
    )
    from topospread_proto.kubernetes.v1.kubernetes_pb2 import LabelSelector

STATES: Final = {each.label.lower(): each for each in reversed(SpreadState)}
"""States by the words that options take, the worst first."""

PAGE_SIZE: Final = 1000


def parse_states(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> Sequence[SpreadState]:
    """States of an option that takes them with commas between; none for an absent option."""
    words = [word.strip().lower() for word in (text or "").split(",") if word.strip()]
    for word in words:
        if word not in STATES:
            known = ", ".join(STATES)
            raise click.BadParameter(f"{word!r} is no state of a constraint: there are {known}")
    return tuple(STATES[word] for word in words)


def complete_states(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    """Completion of states with commas between."""
    begun, comma, word = typed.rpartition(",")
    return [f"{begun}{comma}{state}" for state in STATES if state.startswith(word.lower())]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which constraints are asked for, and how they are judged.

    Attributes:
        owners: empty for all.
        states: empty for all.
        when: whenUnsatisfiable; None for both.
        domain_limit: domains to list of each.
    """

    namespace: str | None = None
    owners: Sequence[WorkloadReference] = ()
    selector: LabelSelector | None = None
    states: Sequence[SpreadState] = ()
    key: str | None = None
    when: str | None = None
    order: ConstraintOrder = ConstraintOrder.SEVERITY
    domain_limit: int = 10
    settings: Settings | None = None

    def filters(self, owner: WorkloadReference | None) -> dict[str, Any]:
        """Arguments of the client's methods."""
        return {
            "namespace": self.namespace,
            "label_selector": self.selector,
            "states": self.states,
            "topology_key": self.key,
            "owner": owner,
            "when_unsatisfiable": self.when,
            "domain_limit": self.domain_limit,
            "settings": self.settings,
        }


@dataclass(slots=True)
class ConstraintList:
    """Constraints that were found.

    Attributes:
        revision: of the first page.
        totals: of all that pass the filter but for its states, by state.
    """

    revision: str = ""
    constraints: list[ConstraintStatus] = field(default_factory=list)
    totals: Counter[SpreadState] = field(default_factory=Counter)


def workloads_named(typed: Sequence[str]) -> Sequence[WorkloadReference]:
    """Controllers of pods that were typed, each once: ``KIND/NAME``, or a name of any kind.

    A kind is one that kubectl knows, or as manifests write it.

    Raises:
        BadInput: a text is neither.
    """
    found = list(dict.fromkeys(map(_workload, typed)))
    of_any_kind = {each.name for each in found if not each.kind}
    return [each for each in found if not each.kind or each.name not in of_any_kind]


def _workload(text: str) -> WorkloadReference:
    kind, slash, name = text.rpartition("/")
    if not name or "/" in kind or (slash and not kind):
        raise BadInput(f"{text!r} is no workload: write KIND/NAME, as deploy/web, or NAME")
    known = kind_label(kind)
    if known is None and kind[:1].islower():
        raise BadInput(f"{text!r}: unknown kind {kind!r}: write it as manifests do, as Rollout")
    return WorkloadReference(known or kind, name)


def constraint_ids(what: str, names: Sequence[str]) -> Sequence[str]:
    """Ids of ``constraint ID...`` or ``constraint/ID...``, each once; none for all constraints.

    Raises:
        BadInput: a text is no id.
    """
    typed = (what, *names) if "/" in what else names
    ids = [
        text.partition("/")[2] if is_constraint(text.partition("/")[0]) else text for text in typed
    ]
    for text, each in zip(typed, ids, strict=True):
        if not each or "/" in each:
            raise BadInput(f"{text!r} is no constraint: write constraint/ID, as -o name prints it")
    return list(dict.fromkeys(ids))


def listed(
    client: Client, wanted: Wanted, consistency: Consistency | None, limit: int | None = None
) -> ConstraintList:
    """All constraints that are asked for, of one owner after the other.

    Args:
        client: to ask.
        wanted: which.
        consistency: how fresh the state must be.
        limit: how many at most; None for all.
    """
    found = ConstraintList()
    for owner in wanted.owners or (None,):
        for page in _pages(client, wanted, owner, consistency, limit):
            found.revision = found.revision or page.revision
            found.constraints += page.constraints
            if limit is not None and len(found.constraints) >= limit:
                break
        for each in page.totals:
            found.totals[each.state] += each.constraint_count
    found.constraints = found.constraints[:limit]
    return found


def _pages(
    client: Client,
    wanted: Wanted,
    owner: WorkloadReference | None,
    consistency: Consistency | None,
    limit: int | None,
) -> Iterator[ListConstraintsResponse]:
    token: str | None = None
    while token != "":
        page = client.list_constraints_page(
            **wanted.filters(owner),
            order=wanted.order,
            page_size=min(limit or PAGE_SIZE, PAGE_SIZE),
            page_token=token,
            consistency=consistency,
        )
        yield page
        token = page.next_page_token
