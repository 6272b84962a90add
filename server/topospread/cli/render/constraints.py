"""Constraints as `report` and `get constraints` ask for them, list and print them."""

from __future__ import annotations

import os
import shutil
import sys
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import click

from topospread import wording
from topospread.cli import documents, output
from topospread.cli.documents import constant, constant_of, value_name
from topospread.cli.errors import MAX_LINES
from topospread.cli.output import Column
from topospread.kube.label_syntax import label_text
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import inspector_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from topospread.cli.options import ClientOptions

STATE_LABELS: Final[Mapping[pb.SpreadState.ValueType, str]] = {
    number: constant(value_name(pb.SpreadState, number))
    for number in sorted(pb.SpreadState.values(), reverse=True)
    if number
}
"""States as documents have them, the worst first."""

STATES: Final = {label.lower(): number for number, label in STATE_LABELS.items()}
"""States by the words that options take, the worst first."""

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
    return label_text(key)


def _whole_key(each: pb.ConstraintStatus) -> str:
    return label_text(each.constraint.topology_key)


def _domains_text(each: pb.ConstraintStatus) -> str:
    allowed, eligible = each.allowed_domain_count, each.eligible_domain_count
    return f"{allowed} of {eligible} allow" if allowed < eligible else f"{eligible}"


def counted_text(counted: common_pb2.CountedPods) -> str:
    """Whose pods a constraint counts beside its owner's; empty where it counts no others."""
    if not counted.others:
        return ""
    own = counted.own_pod_count
    total = own + sum(each.pod_count for each in counted.others) + counted.unlisted_pod_count
    there = [f"{each.value or EMPTY} {each.pod_count}" for each in counted.own_domains]
    # In part they would be taken for all.
    whole = sum(each.pod_count for each in counted.own_domains) == own
    where = f" ({', '.join(there)})" if whole and len(there) > 1 else ""
    if whole and len(there) == 1:
        every = {1: "", 2: "both "}.get(own, "all ")
        where = f", {every}in {counted.own_domains[0].value or EMPTY}"
    text = (
        f"{own or 'none'} of the {total} pods that it counts {'is' if own < 2 else 'are'} its own"
    )
    if total == 1:
        text = "the only pod that it counts is not its own"
    named = [
        f"{each.workload.kind}/{each.workload.name} ({each.pod_count})"
        if each.HasField("workload")
        else f"without a controller ({each.pod_count})"
        for each in counted.others
    ]
    more = counted.unlisted_other_count
    named += [wording.counted(more, "more workload")] * bool(more)
    return f"{text}{where}; others: {', '.join(named)}"


EMPTY: Final = '""'
"""How an empty value of a label is shown."""


def _look_alike(constraints: Sequence[pb.ConstraintStatus]) -> Sequence[Column]:
    """Columns that tell rows apart of one owner, key and action, as those of two revisions."""
    alike: dict[object, list[pb.ConstraintStatus]] = {}
    for each in constraints:
        spec = each.constraint
        place = (spec.namespace, owner_text(each), spec.topology_key, spec.when_unsatisfiable)
        alike.setdefault(place, []).append(each)
    same = [rows for rows in alike.values() if len(rows) > 1]
    if not same:
        return ()
    if all(len({row.constraint.selector_text for row in rows}) == len(rows) for rows in same):
        return (Column("SELECTOR", attrgetter("constraint.selector_text")),)
    return (Column("ID", attrgetter("constraint_id")),)


def _columns(*, wide: bool, gone: bool = False) -> list[Column]:
    return [
        Column("NAMESPACE", attrgetter("constraint.namespace")),
        Column("OWNER", owner_text),
        Column("KEY", _whole_key if wide else _short_key),
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
    apart: bool = True,
) -> Sequence[int]:
    """Print a row for each constraint, with its spread; see :func:`~topospread.cli.output.table`.

    Those that are `gone` are there no more. Rows that look alike get a column that tells them
    `apart`.
    """
    columns = _columns(wide=wide, gone=gone)
    if apart and not wide:
        columns[4:4] = _look_alike(constraints)
    width = _WIDTH if wide else _width_left(columns, constraints)
    columns.append(Column("SPREAD", lambda each: spread(each, width)))
    columns.append(Column("MESSAGE", attrgetter("message"), wide=True))
    columns.append(Column("WAITING", attrgetter("waiting_reason"), wide=True))
    columns.append(Column("COUNTED", lambda each: counted_text(each.counted), wide=True))
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
    text = wording.counted(everything, "constraint")
    text += f": {', '.join(counted)}" if counted else ""
    return text if shown == everything else f"{text}; {shown} shown"


def _print_messages(constraints: Sequence[pb.ConstraintStatus]) -> None:
    lines: list[str] = []
    waiting: dict[str, None] = {}
    whose: list[str] = []
    for each in constraints:
        where = f"{each.constraint.namespace} {owner_text(each)}".rstrip()
        key = f"{where}, {_whole_key(each)}"
        lines += [f"{key}: {each.message}"] * bool(each.message)
        if counted := counted_text(each.counted):
            whose.append(f"{key}: {counted}")
        if text := waiting_text(each):
            waiting[f"{where}: {text}"] = None
    lines += [*waiting, *whose]
    if lines:
        click.echo()
    for line in lines[:MAX_LINES]:
        output.echo(line)
    if len(lines) > MAX_LINES:
        output.echo(f"... and {len(lines) - MAX_LINES} more: -o wide has all messages")


def waiting_text(each: pb.ConstraintStatus) -> str:
    """Why pods wait, where the constraint is not what all of them wait for."""
    if each.pending_pod_count == each.blocked_pod_count:
        return ""
    pods = each.pending_pod_count
    if pods == each.gated_pod_count:
        return each.waiting_reason
    return f"{wording.counted(pods, 'pod')} wait{'s' * (pods == 1)}: {each.waiting_reason}"


def print_gaps(constraints: Iterable[pb.ConstraintStatus]) -> None:
    """Print what was not looked at of the next replicas, each once."""
    if gaps := row_gaps_text(constraints):
        click.echo()
        output.echo(gaps)


def row_gaps_text(constraints: Iterable[pb.ConstraintStatus]) -> str:
    """What was not looked at of the next replicas, each once; empty for nothing."""
    gaps = dict.fromkeys(gap for each in constraints for gap in each.not_modelled)
    return f"not looked at: {', '.join(gaps)}" if gaps else ""


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
