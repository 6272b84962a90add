"""Constraints as `report` and `get constraints` ask for them, list and print them."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from topospread.cli import documents, output
from topospread.cli.documents import constant, constant_of, value_name
from topospread.cli.errors import MAX_LINES, BadInput, CallsFailed, FailedCall
from topospread.cli.kinds import is_constraint, kind_label
from topospread.cli.options import pages
from topospread.cli.output import Column
from topospread_client import NotFound
from topospread_proto.v1 import inspector_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from topospread.cli.options import ApiCaller, ClientOptions

STATE_LABELS: Final[Mapping[pb.SpreadState.ValueType, str]] = {
    number: constant(value_name(pb.SpreadState, number))
    for number in sorted(pb.SpreadState.values(), reverse=True)
    if number
}
"""States as documents have them, the worst first."""

STATES: Final = {label.lower(): number for number, label in STATE_LABELS.items()}
"""States by the words that options take, the worst first."""

PAGE_SIZE: Final = 1000

STYLES: Final = {"Blocked": "red", "Violated": "red", "Ineffective": "yellow"}
"""Colours of states on a terminal."""

_WELL_KNOWN: Final = ("topology.kubernetes.io/", "kubernetes.io/")
"""Prefixes that tables leave out of keys."""

_WIDTH: Final = 72
"""Characters of a spread where no terminal limits them."""

_NARROWEST: Final = 20
"""Characters that a spread may have on any terminal."""

_BAR: Final = 10
"""Characters of the longest bar."""


def path_of(constraint_id: str) -> str:
    """Name of a constraint as `-o name` prints it."""
    return f"constraint/{constraint_id}"


def show(
    found: pb.ListConstraintsResponse,
    wanted: pb.ConstraintFilter,
    options: ClientOptions,
    *,
    headings: bool,
) -> None:
    """Print a list in the form of `--output`; how many there are in each state goes to stderr."""
    if options.output == "name":
        for each in found.constraints:
            output.echo(path_of(each.constraint_id))
    elif options.output != "table":
        documents.show(
            "ConstraintList",
            options.output,
            cluster=options.cluster,
            revision=found.meta.revision,
            kubernetes_version=found.meta.kubernetes_version,
            totals=found.totals,
            items=found.constraints,
        )
    elif found.constraints:
        print_table(found.constraints, wide=options.wide, headings=headings)
        if headings and not options.wide:
            _print_messages(found.constraints)
        if headings:
            print_gaps(found.constraints)
        output.warn(totals_text(found.totals, len(found.constraints)))
    else:
        warn_of_none(found, wanted)


def warn_of_none(found: pb.ListConstraintsResponse, wanted: pb.ConstraintFilter) -> None:
    """Say on stderr that no constraint is shown: there is none, or none in these states."""
    others = any(each.constraint_count for each in found.totals)
    output.warn(totals_text(found.totals, 0) if others else nothing_found(wanted))


def owner_text(each: pb.ConstraintStatus) -> str:
    """Controller of a constraint's pods as KIND/NAME; empty without one."""
    return f"{each.owner.kind}/{each.owner.name}" if each.HasField("owner") else ""


def _short_key(each: pb.ConstraintStatus) -> str:
    key = each.constraint.topology_key
    for prefix in _WELL_KNOWN:
        key = key.removeprefix(prefix)
    return key


def _domains_text(each: pb.ConstraintStatus) -> str:
    allowed, eligible = each.allowed_domain_count, each.eligible_domain_count
    return f"{allowed} of {eligible} allow" if allowed < eligible else f"{eligible}"


def _columns(*, wide: bool, gone: bool = False) -> list[Column]:
    return [
        Column("NAMESPACE", attrgetter("constraint.namespace")),
        Column("OWNER", owner_text),
        Column("KEY", attrgetter("constraint.topology_key") if wide else _short_key),
        Column("WHEN", attrgetter("constraint.when_unsatisfiable")),
        Column("SKEW", lambda each: f"{each.skew}/{each.constraint.max_skew}"),
        Column("STATE", lambda each: "Gone" if gone else constant_of(pb.SpreadState, each.state)),
        Column("#PENDING", attrgetter("pending_pod_count")),
        Column("#BLOCKED", attrgetter("blocked_pod_count")),
        Column("DOMAINS", _domains_text, wide=True),
        Column("SELECTOR", attrgetter("constraint.selector_text"), wide=True),
        Column("DEFAULTED", lambda each: "yes" if each.defaulted else "no", wide=True),
        Column("ID", attrgetter("constraint_id"), wide=True),
    ]


def print_table(
    constraints: Sequence[pb.ConstraintStatus],
    *,
    wide: bool,
    headings: bool = True,
    least: Sequence[int] = (),
    gone: bool = False,
) -> Sequence[int]:
    """Print a row for each constraint, with its spread; see :func:`~topospread.cli.output.table`.

    Those that are `gone` are there no more.
    """
    columns = _columns(wide=wide, gone=gone)
    width = _WIDTH if wide else _width_left(columns, constraints)
    columns.append(Column("SPREAD", lambda each: spread(each, width)))
    columns.append(Column("MESSAGE", attrgetter("message"), wide=True))
    return output.print_items(
        columns, constraints, wide=wide, styles=STYLES, headings=headings, least=least
    )


def print_ids(constraints: Sequence[pb.ConstraintStatus], *, headings: bool) -> None:
    """Print a row for each constraint, with the id by which `get` takes it."""
    columns = _columns(wide=False)
    columns.insert(1, Column("ID", attrgetter("constraint_id")))
    output.print_items(columns, constraints, styles=STYLES, headings=headings)


def _width_left(columns: Sequence[Column], rows: Sequence[pb.ConstraintStatus]) -> int:
    if not sys.stdout.isatty():
        return _WIDTH
    taken = [
        max(
            len(column.heading.removeprefix("#")),
            *(len(str(column.value(each) or output.NONE)) for each in rows),
        )
        for column in columns
        if not column.wide
    ]
    left = shutil.get_terminal_size().columns - sum(taken) - 2 * len(taken)
    return max(left, _NARROWEST)


def spread(each: pb.ConstraintStatus, width: int) -> str:
    """How pods are spread over domains: a bar for each, or the ends where they are too many."""
    if not each.domains:
        return ""
    if each.unlisted_domain_count == 0:
        domains = sorted(each.domains, key=lambda domain: domain.value)
        values = [domain.value or '""' for domain in domains]
        for names in (values, _without_prefix(values)):
            shown = _bars(
                list(zip(names, (each.pod_count for each in domains), strict=True)), width
            )
            if shown:
                return shown
    counts = f"{each.lowest_pod_count}..{each.highest_pod_count}"
    return f"{counts} in {each.eligible_domain_count} domains"


def _without_prefix(values: Sequence[str]) -> Sequence[str]:
    """Values without the words that all begin with: eu-west-1a and eu-west-1b as -1a and -1b."""
    shared = os.path.commonprefix(values).rfind("-")  # noqa: RUF071 # of characters, as meant
    return values if shared < 0 else [value[shared:] for value in values]


def _bars(domains: Sequence[tuple[str, int]], width: int) -> str:
    """A bar for each domain; empty where they do not fit."""
    block, between = ("█", " · ") if output.encodable("█·") else ("#", ", ")
    most = max(pods for _, pods in domains)
    words = sum(len(f"{value}  {pods}") for value, pods in domains)
    capacity = width - words - len(between) * (len(domains) - 1)
    longest = min(_BAR, most, capacity // len(domains))
    if capacity < 0 or (most and not longest):
        return ""
    bars = (block * -(-pods * longest // most) if most else "" for _, pods in domains)
    return between.join(
        f"{value} {bar} {pods}" if bar else f"{value} {pods}"
        for (value, pods), bar in zip(domains, bars, strict=True)
    )


def totals_text(totals: Iterable[pb.SpreadStateCount], shown: int) -> str:
    """Number of constraints in each state, the worst first, for people."""
    counts = {each.state: each.constraint_count for each in totals}
    everything = sum(counts.values())
    counted = [
        f"{counts[state]} {label.lower()}"
        for state, label in STATE_LABELS.items()
        if counts.get(state)
    ]
    text = f"{everything} constraint{'s' * (everything != 1)}"
    text += f": {', '.join(counted)}" if counted else ""
    return text if shown == everything else f"{text}; {shown} shown"


def _print_messages(constraints: Sequence[pb.ConstraintStatus]) -> None:
    worse = [each for each in constraints if each.message]
    if worse:
        click.echo()
    for each in worse[:MAX_LINES]:
        where = f"{each.constraint.namespace} {owner_text(each)}".rstrip()
        output.echo(f"{where}, {each.constraint.topology_key}: {each.message}")
    if len(worse) > MAX_LINES:
        output.echo(f"... and {len(worse) - MAX_LINES} more: -o wide has all messages")


def print_gaps(constraints: Iterable[pb.ConstraintStatus]) -> None:
    """Print what was not looked at of the next replicas, each once."""
    if gaps := gaps_text(constraints):
        click.echo()
        output.echo(gaps)


def gaps_text(constraints: Iterable[pb.ConstraintStatus]) -> str:
    """What was not looked at of the next replicas, each once; empty for nothing."""
    gaps = dict.fromkeys(gap for each in constraints for gap in each.not_modelled)
    return f"not looked at: {', '.join(gaps)}" if gaps else ""


class OwnerName(NamedTuple):
    """Controller of pods that was typed; an empty kind is any."""

    kind: str
    name: str


def parse_states(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> Sequence[pb.SpreadState.ValueType]:
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


def nothing_found(wanted: pb.ConstraintFilter) -> str:
    """What to say where no constraint passes a filter, in whatever state."""
    where = f" in namespace {wanted.namespace}" if wanted.namespace else ""
    given = {
        "-l": wanted.HasField("label_selector"),
        "--key": wanted.topology_key,
        "--hard or --soft": wanted.when_unsatisfiable,
    }
    flags = ", ".join(flag for flag, value in given.items() if value)
    left = f" that {flags} lets through" if flags else ""
    return f"no constraints{left}{where}" + (": -A shows those of all" if where else "")


def workloads_named(typed: Sequence[str]) -> Sequence[OwnerName]:
    """Controllers of pods that were typed, each once: ``KIND/NAME``, or a name of any kind.

    A kind is one that kubectl knows, or as manifests write it.
    """
    found = list(dict.fromkeys(map(_workload, typed)))
    of_any_kind = {each.name for each in found if not each.kind}
    return [each for each in found if not each.kind or each.name not in of_any_kind]


def _workload(text: str) -> OwnerName:
    kind, slash, name = text.rpartition("/")
    if not name or "/" in kind or (slash and not kind):
        raise BadInput(f"{text!r} is no workload: write KIND/NAME, as deploy/web, or NAME")
    known = kind_label(kind)
    if known is None and kind[:1].islower():
        raise BadInput(f"{text!r}: unknown kind {kind!r}: write it as manifests do, as Rollout")
    return OwnerName(known or kind, name)


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
    empty: list[OwnerName] = []
    request.page_size = min(limit or PAGE_SIZE, PAGE_SIZE)
    for owner in owners or (None,):
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
        _check_known(caller, request, empty)
    del found.constraints[len(found.constraints) if limit is None else limit :]
    for state in STATE_LABELS:
        found.totals.add(state=state, constraint_count=totals[state])
    return found


def _of(request: pb.ListConstraintsRequest, owner: OwnerName | None) -> pb.ListConstraintsRequest:
    made = pb.ListConstraintsRequest()
    made.CopyFrom(request)
    if owner is not None:
        made.filter.owner.kind, made.filter.owner.name = owner
    return made


def _check_known(
    caller: ApiCaller, request: pb.ListConstraintsRequest, owners: Sequence[OwnerName]
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
    texts = [_unknown_text(each, namespace, alone=alone) for each in unknown]
    raise CallsFailed([FailedCall(NotFound(text, reason="OBJECT_NOT_FOUND")) for text in texts])


def _unknown_text(owner: OwnerName, namespace: str, *, alone: bool) -> str:
    """What to say of an owner that has no constraint; `alone`, no other owner there has one."""
    text = f"no constraints of {'/'.join(filter(None, owner))}" + (
        f" in namespace {namespace}" if namespace else ""
    )
    if not owner.kind and kind_label(owner.name):
        return f"{text}: with a kind, write {owner.name}/NAME; without a word, all are shown"
    if namespace and alone:
        return f"{text}, nor of any other workload there: -A looks in all namespaces"
    return f"{text}: -A looks in all namespaces" if namespace else text
