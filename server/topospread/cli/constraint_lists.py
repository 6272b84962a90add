"""The constraints that `report` and `get constraints` are asked for: options, and their lists."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click

from topospread.cli.errors import BadInput, CallsFailed, FailedCall
from topospread.cli.kinds import is_constraint, kind_label
from topospread_client import ConstraintOrder, NotFound, SpreadState, WorkloadReference

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

    @property
    def nothing_found(self) -> str:
        """What to say where there is no such constraint, in whatever state."""
        where = f" in namespace {self.namespace}" if self.namespace else ""
        given = {"-l": self.selector, "--key": self.key, "--hard or --soft": self.when}
        flags = ", ".join(flag for flag, value in given.items() if value is not None)
        left = f" that {flags} lets through" if flags else ""
        return f"no constraints{left}{where}" + (": -A shows those of all" if where else "")

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

    Raises:
        CallsFailed: owners have no constraint at all, as those whose names are mistyped; each is
            NotFound.
    """
    found = ConstraintList()
    empty: list[WorkloadReference] = []
    for owner in wanted.owners or (None,):
        for page in _pages(client, wanted, owner, consistency, limit):
            found.revision = found.revision or page.revision
            found.constraints += page.constraints
            if limit is not None and len(found.constraints) >= limit:
                break
        for each in page.totals:
            found.totals[each.state] += each.constraint_count
        if owner is not None and not _counted(page):
            empty.append(owner)
    if empty:
        _check_known(client, wanted, empty, consistency)
    found.constraints = found.constraints[:limit]
    return found


def _check_known(
    client: Client,
    wanted: Wanted,
    owners: Sequence[WorkloadReference],
    consistency: Consistency | None,
) -> None:
    """Refuse owners of no constraint; of those that are left the filters let none through."""
    everything = Wanted(wanted.namespace, domain_limit=1, settings=wanted.settings)

    def first_page(owner: WorkloadReference | None, limit: int) -> ListConstraintsResponse:
        return next(_pages(client, everything, owner, consistency, limit))

    unknown = [each for each in owners if not _counted(first_page(each, 1))]
    if not unknown:
        return
    around = first_page(None, 1).constraints
    raise CallsFailed(
        [
            FailedCall(
                NotFound(
                    _unknown_text(each, wanted.namespace, alone=not around),
                    reason="OBJECT_NOT_FOUND",
                )
            )
            for each in unknown
        ]
    )


def _counted(page: ListConstraintsResponse) -> int:
    """How many constraints pass the filter but for its states."""
    return sum(each.constraint_count for each in page.totals)


def _unknown_text(owner: WorkloadReference, namespace: str | None, *, alone: bool) -> str:
    """What to say of an owner that has no constraint.

    Args:
        owner: as it was typed.
        namespace: that was looked in; None for all.
        alone: no other owner there has one.
    """
    text = f"no constraints of {_typed(owner)}" + (
        f" in namespace {namespace}" if namespace else ""
    )
    if not owner.kind and kind_label(owner.name):
        return f"{text}: with a kind, write {owner.name}/NAME; without a word, all are shown"
    if namespace and alone:
        return f"{text}, nor of any other workload there: -A looks in all namespaces"
    return f"{text}: -A looks in all namespaces" if namespace else text


def _typed(owner: WorkloadReference) -> str:
    return f"{owner.kind}/{owner.name}" if owner.kind else owner.name


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
