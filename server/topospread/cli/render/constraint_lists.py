"""Constraints as `report` and `get constraints` ask for them: of which workloads, and all pages."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from topospread.cli.errors import BadInput, CallsFailed, FailedCall
from topospread.cli.kinds import is_constraint, is_kind, kind_label, written_kind
from topospread.cli.options import pages
from topospread.cli.render.constraints import STATE_LABELS, owner_text
from topospread.cli.state_pods import StatePods
from topospread_client import NotFound
from topospread_proto.v1 import inspector_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.cli.options import ApiCaller

PAGE_SIZE: Final = 1000


class OwnerName(NamedTuple):
    """Controller of pods that was typed; an empty kind or namespace is any."""

    kind: str
    name: str
    namespace: str = ""


def workloads_named(typed: Sequence[str], namespace: str | None = None) -> Sequence[OwnerName]:
    """Controllers of pods that were typed, each once: ``KIND/NAME``, or a name of any kind.

    Or ``KIND/NAMESPACE/NAME``, or kubectl's ``KIND NAME...``.
    """
    kind = written_kind(typed[0]) if len(typed) > 1 else None
    if kind is not None:
        typed = [each if "/" in each else f"{kind}/{each}" for each in typed[1:]]
    found = list(dict.fromkeys(map(_workload, typed)))
    for each in found:
        if each.namespace and namespace not in (None, "", each.namespace):
            text = f"{each.kind}/{each.namespace}/{each.name}"
            raise BadInput(f"{text!r} is not in --namespace {namespace}: leave one of them out")
    of_any_kind = {each.name for each in found if not each.kind}
    return [each for each in found if not each.kind or each.name not in of_any_kind]


def _workload(text: str) -> OwnerName:
    parts = text.split("/")
    if len(parts) > 3 or not all(parts):
        raise BadInput(f"{text!r} is no workload: write KIND/NAME, as deploy/web, or NAME")
    if len(parts) == 1:
        return OwnerName("", text)
    return OwnerName(written_kind(parts[0]) or parts[0], parts[-1], *parts[1:-1])


def constraint_ids(what: str, names: Sequence[str]) -> Sequence[str]:
    """Ids of ``constraint ID...`` or ``constraint/ID...``, each once; none for all constraints."""
    typed = (what, *names) if "/" in what else names
    ids = [
        text.partition("/")[2] if is_constraint(text.partition("/")[0]) else text for text in typed
    ]
    for text, each in zip(typed, ids, strict=True):
        if not each or "/" in each:
            raise BadInput(f"{text!r} is no constraint: write constraint/ID, as -o name prints it")
    return list(dict.fromkeys(ids))


def listed(
    caller: ApiCaller,
    request: pb.ListConstraintsRequest,
    owners: Sequence[OwnerName] = (),
    limit: int | None = None,
) -> pb.ListConstraintsResponse:
    """All constraints that are asked for as one page, those of one owner after the other.

    Raises:
        CallsFailed: owners have no constraint at all, as those whose names are mistyped; each is
            NotFound.
    """
    found = pb.ListConstraintsResponse()
    totals: Counter[int] = Counter()
    owners = _in_kubectls_order(caller, request, owners)
    empty: list[OwnerName] = []
    request.page_size = min(limit or PAGE_SIZE, PAGE_SIZE)
    pods = StatePods(caller, request.consistency if request.HasField("consistency") else None)
    asked = [
        maker
        for owner in owners
        for each in resolved(caller, request, owner)
        for maker in _makers(caller, request, pods, each)
    ]
    for owner in asked or (None,):
        for page in pages(caller, "ListConstraints", _of(request, owner)):
            if not found.HasField("meta"):
                found.meta.CopyFrom(page.meta)
            found.constraints.extend(page.constraints)
            if limit is not None and len(found.constraints) >= limit:
                break
        counted = {each.state: each.constraint_count for each in page.totals}
        totals.update(counted)
        if owner is not None and not any(counted.values()):
            empty.append(owner)
    if empty:
        _check_known(caller, request, pods, empty)
    del found.constraints[len(found.constraints) if limit is None else limit :]
    for state in STATE_LABELS:
        found.totals.add(state=state, constraint_count=totals[state])
    return found


def _of(request: pb.ListConstraintsRequest, owner: OwnerName | None) -> pb.ListConstraintsRequest:
    made = pb.ListConstraintsRequest()
    made.CopyFrom(request)
    if owner is not None:
        made.filter.owner.kind, made.filter.owner.name = owner.kind, owner.name
        made.filter.namespace = owner.namespace or made.filter.namespace
    return made


def _in_kubectls_order(
    caller: ApiCaller, request: pb.ListConstraintsRequest, owners: Sequence[OwnerName]
) -> Sequence[OwnerName]:
    """``kafka a b`` is of a kind, where the state has such a kind and no workload of this name."""
    first, *rest = owners or (OwnerName("", ""),)
    if not rest or any(each.kind for each in owners) or _rows(caller, request, first):
        return owners
    named = [row for each in rest for row in _rows(caller, request, each)]
    if not any(is_kind(first.name, row.owner.kind) for row in named):
        return owners
    return [each._replace(kind=first.name) for each in rest]


def resolved(
    caller: ApiCaller, request: pb.ListConstraintsRequest, owner: OwnerName
) -> Sequence[OwnerName]:
    """An owner by the kind that the state has, where the one that was typed may be another word.

    That may be the owner's namespace, too, where it is no kind of an owner of this name.
    """
    if not owner.kind or kind_label(owner.kind) is not None:
        return (owner,)
    rows = _rows(caller, request, owner._replace(kind=""))
    kinds = {row.owner.kind for row in rows if is_kind(owner.kind, row.owner.kind)}
    if kinds:
        return [owner._replace(kind=kind) for kind in sorted(kinds)]
    is_namespace = any(row.constraint.namespace == owner.kind for row in rows)
    if is_namespace and not owner.namespace:
        return (OwnerName("", owner.name, owner.kind),)
    return (owner,)


def _rows(
    caller: ApiCaller, request: pb.ListConstraintsRequest, owner: OwnerName
) -> Sequence[pb.ConstraintStatus]:
    """All constraints of an owner, in whatever state."""
    question = _of(request, owner)
    del question.filter.states[:]
    return [row for page in pages(caller, "ListConstraints", question) for row in page.constraints]


def _makers(
    caller: ApiCaller, request: pb.ListConstraintsRequest, state: StatePods, owner: OwnerName
) -> Sequence[OwnerName]:
    """The workloads that make the pods of an owner without rows: of a Prometheus StatefulSets."""
    if not owner.kind or _rows(caller, request, owner):
        return (owner,)
    found: dict[OwnerName, None] = {}
    for pod in state.of(owner.namespace or request.filter.namespace or None):
        workload, chain = state.workload(pod), state.controllers(pod)
        # Those further out; what is within a workload has no rows of its own.
        for each in chain[chain.index(workload) + 1 :] if chain else ():
            if each.name == owner.name and is_kind(owner.kind, each.kind):
                found[OwnerName(workload.kind, workload.name, pod.metadata.namespace)] = None
    return list(found) or (owner,)


def _check_known(
    caller: ApiCaller,
    request: pb.ListConstraintsRequest,
    state: StatePods,
    owners: Sequence[OwnerName],
) -> None:
    namespace = request.filter.namespace
    any_of_all = pb.ListConstraintsRequest(
        filter=pb.ConstraintFilter(namespace=namespace),
        page_size=1,
        domain_limit=1,
        consistency=request.consistency if request.HasField("consistency") else None,
        settings=request.settings if request.HasField("settings") else None,
    )

    def there_are(owner: OwnerName | None) -> bool:
        page = caller.call("ListConstraints", _of(any_of_all, owner))
        return any(each.constraint_count for each in page.totals)

    unknown = [each for each in owners if not there_are(each)]
    if not unknown:
        return
    alone = not there_are(None)
    texts: list[str] = []
    for each in unknown:
        similar = (
            _similar(caller, any_of_all, each)
            or _outer(state, each, namespace)
            or [
                f"{found.kind}/{found.name}"
                for found in state.beginning(each.name, each.namespace or namespace or None)
            ]
        )
        texts.append(_unknown_text(each, namespace, similar, alone=alone))
    raise CallsFailed([FailedCall(NotFound(text, reason="OBJECT_NOT_FOUND")) for text in texts])


def _similar(
    caller: ApiCaller, request: pb.ListConstraintsRequest, owner: OwnerName
) -> Sequence[str]:
    """Owners of the same name that are of another kind."""
    if not owner.kind:
        return ()
    page = caller.call("ListConstraints", _of(request, owner._replace(kind="")))
    return [owner_text(each) for each in page.constraints]


def _outer(state: StatePods, owner: OwnerName, namespace: str) -> Sequence[str]:
    """The workloads that pods are known by which an owner controls: of a ReplicaSet's pods."""
    found: dict[str, None] = {}
    for pod in state.of(owner.namespace or namespace or None):
        outer = state.workload(pod)
        for each in state.controllers(pod):
            is_kind_of = not owner.kind or is_kind(owner.kind, each.kind)
            is_named = each.name == owner.name and is_kind_of
            if is_named and each != outer:
                found[f"{outer.kind}/{outer.name}"] = None
    return list(found)


def _unknown_text(owner: OwnerName, namespace: str, similar: Sequence[str], *, alone: bool) -> str:
    """What to say of an owner that has no constraint.

    Args:
        owner: as it was typed.
        namespace: that of `-n`.
        similar: owners that may be meant.
        alone: no other owner there has one.
    """
    named = "/".join(filter(None, (owner.kind, owner.name)))
    where = owner.namespace or namespace
    text = f"no constraints of {named}" + (f" in namespace {where}" if where else "")
    if similar:
        return f"{text}: did you mean {' or '.join(similar[:_NAMED])}?"
    if not owner.kind and kind_label(owner.name):
        return f"{text}: with a kind, write {owner.name}/NAME; without a word, all are shown"
    if owner.namespace or not where:
        return text
    nor = ", nor of any other workload there" if alone else ""
    return f"{text}{nor}: -A looks in all namespaces"


_NAMED: Final = 3
"""Owners that an error names."""
