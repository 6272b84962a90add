"""Rendering of the answers of `explain`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from topospread.cli import documents, output
from topospread.cli.kinds import full_name
from topospread.cli.render.constraints import counted_text
from topospread.kube.label_syntax import label_text
from topospread.spread.settings import gaps_text, is_bound
from topospread.wording import counted
from topospread_proto.v1 import explanation_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread.cli.manifest_objects import PodRequest
    from topospread_proto.v1.common_pb2 import SpreadConstraint
    from topospread_proto.v1.decision_service_pb2 import ExplainPodResponse
    from topospread_proto.v1.explanation_pb2 import (
        ConstraintExplanation,
        DomainExplanation,
        ExcludedNodes,
        Explanation,
        NodeReason,
        PodScheduledCondition,
        Suggestion,
    )

_COLUMNS: Final = ("DOMAIN", "#PODS", "#NODES", "#ELIGIBLE", "#USABLE", "#SKEW", "VERDICT", "WHY")
_STYLES: Final = {"open": "green", "closed": "red"}

_NAMED: Final = 3
"""Number of domains that are named as holding the minimum."""

_EXCLUDED: Final = {
    "missing_key_count": "lacking {keys}",
    "affinity_count": "outside the node affinity",
    "cordoned_count": "cordoned",
    "tainted_count": "tainted",
}


@dataclass(frozen=True, slots=True)
class ExplainedPod:
    """Pod and its explanation."""

    request: PodRequest
    answer: ExplainPodResponse

    @property
    def fits(self) -> bool:
        """Whether a node fits, by the filters that the request names."""
        return self.answer.explanation.fitting_node_count > 0


def show(found: Sequence[ExplainedPod], form: str, cluster: str) -> None:
    """Print explanations in the form of `--output`."""
    documents.present(
        form,
        "ExplanationList",
        lambda: output.separated(found, _print),
        (),
        cluster=cluster,
        items=map(_item, found),
    )


def _item(pod: ExplainedPod) -> dict[str, Any]:
    item = documents.joined(
        pod.request.subject, {"fits": pod.fits}, pod.answer, next_replica_of(pod)
    )
    del item["evaluation"]  # it is what `evaluate` prints
    return item


def next_replica_of(pod: ExplainedPod) -> dict[str, Any]:
    """What a document says of the next replica of a workload; nothing of other pods."""
    replica = pod.request.next_replica
    return {"nextReplica": replica} if replica else {}


def print_heading(request: PodRequest) -> None:
    """Print which pod it is, and of a workload's next replica which pod it is like."""
    click.secho(request.heading, bold=True)
    if replica := request.next_replica:
        output.echo(
            f"its next replica, like pod {full_name(replica.like_pod)}, the newest; "
            f"{replica.pending_pod_count} pending, {replica.running_pod_count} running"
        )


def state_fields(answer: Any) -> Sequence[tuple[str, object]]:
    """Names and values of what an answer says of the state behind it, for people."""
    meta = answer.meta
    unreachable = meta.store_unreachable_for.ToTimedelta().total_seconds()
    is_lost = meta.HasField("store_unreachable_for")
    return [
        ("revision", meta.revision),
        ("store unreachable for", output.seconds(unreachable) if is_lost else ""),
        ("trace", documents.trace_id(answer)),
    ]


def _print(pod: ExplainedPod) -> None:
    found = pod.answer.explanation
    print_heading(pod.request)
    if not found.constraints:
        output.echo("no constraint holds for it")
    empty = explanation_pb2.FINDING_CODE_EMPTY_SELECTOR
    idle = {each.constraint_index for each in found.findings if each.code == empty}
    for constraint in found.constraints:
        click.echo()
        selects = constraint.index not in idle
        _print_constraint(constraint, defaulted=found.defaulted, empty_selects=selects)
    for title, lines in (
        ("Findings", list(_findings(found))),
        (
            "What would let it in (each was tried out)",
            [suggestion_text(each) for each in found.suggestions],
        ),
    ):
        if lines:
            click.echo()
            click.secho(title, bold=True)
            for line in lines:
                output.echo(f"  - {line}")
    click.echo()
    output.fields(
        [
            ("fits", fits_text(found)),
            ("refused by other filters", _reason_counts(found.node_reasons)),
            ("not looked at", ", ".join(found.not_modelled)),
            ("message", found.message),
            ("cause", found.cause),
            ("the scheduler says", scheduler_text(found.scheduled_condition)),
            *state_fields(pod.answer),
        ]
    )


def _print_constraint(
    constraint: ConstraintExplanation, *, defaulted: bool, empty_selects: bool
) -> None:
    spread = constraint.constraint
    whose = "default " if defaulted else ""
    click.secho(f"{whose}constraint {constraint.index}: {constraint_text(spread)}", bold=True)
    output.fields(
        [
            ("counts", _counts_text(constraint, empty_selects=empty_selects)),
            ("whose", counted_text(constraint.counted)),
            ("minimum", _minimum_text(constraint)),
            ("closed", _closed_text(constraint)),
            ("weight", f"{constraint.weight:.3f} a pod" if constraint.weight else ""),
        ]
    )
    print_domains(
        spread,
        constraint.minimum.reason,
        constraint.domains,
        constraint.leading_domain_count,
        constraint.unlisted_domain_count,
        constraint.missing_keys,
    )


def constraint_text(constraint: SpreadConstraint) -> str:
    """Topology key and terms of a constraint, for people."""
    terms = [constraint.when_unsatisfiable, f"maxSkew {constraint.max_skew}"]
    if constraint.min_domains > 1:
        terms.append(f"minDomains {constraint.min_domains}")
    return f"{label_text(constraint.topology_key)} ({', '.join(terms)})"


def print_domains(
    constraint: SpreadConstraint,
    because: int,
    domains: Sequence[DomainExplanation],
    leading: int,
    unlisted: int,
    missing_keys: Sequence[str] = (),
) -> None:
    """Print a row for each domain of a constraint, of which `unlisted` are left out.

    `because` is why its global minimum is so; `leading` domains stand before those left out.
    """
    columns = list(_COLUMNS)
    if not _is_hard(constraint):
        columns[-2:] = ["SCORE", "WHY"]
    rows = [_cells(constraint, because, domain, missing_keys) for domain in domains]
    if unlisted:
        gap: list[object] = [f"… and {unlisted:,} more", *[" "] * (len(columns) - 1)]
        rows.insert(leading, gap)
    if rows:
        output.table(columns, rows, styles=_STYLES)


def _is_hard(constraint: SpreadConstraint) -> bool:
    return constraint.when_unsatisfiable == "DoNotSchedule"


def _counts_text(constraint: ConstraintExplanation, *, empty_selects: bool) -> str:
    eligible, domains = constraint.eligible_domain_count, constraint.domain_count
    text = (
        f"{_selected_pods(constraint.constraint, empty_selects=empty_selects)} on "
        f"{counted(constraint.eligible_node_count, 'eligible node')}, "
        f"in {eligible} of {counted(domains, 'domain')}"
    )
    excluded = _excluded(constraint.excluded, constraint.missing_keys)
    if constraint.keyless_node_count:
        excluded.append(f"{constraint.keyless_node_count} without the key")
    return f"{text}; not {', '.join(excluded)}" if excluded else text


def _selected_pods(constraint: SpreadConstraint, *, empty_selects: bool) -> str:
    """Pods that a constraint counts; an empty selector selects all of the namespace, or none."""
    if not constraint.HasField("label_selector"):
        return "no pods (without a labelSelector)"
    if constraint.selector_text == "<empty>":
        return f"{'all' if empty_selects else 'no'} pods (with an empty labelSelector)"
    return f"pods {constraint.selector_text}"


def _minimum_text(constraint: ConstraintExplanation) -> str:
    minimum = constraint.minimum
    if minimum.note:
        return f"{minimum.value}, {minimum.note}"
    leading = constraint.domains[: constraint.leading_domain_count]
    named = [label_text(each.value) for each in leading if each.holds_minimum][:_NAMED]
    more = minimum.lowest_domain_count - len(named)
    who = ", ".join(named) + f" and {more:,} more" * bool(more)
    of = constraint.eligible_domain_count
    return f"{minimum.value}, held by {who}: the fewest of {of:,} eligible domain{'s' * (of != 1)}"


def _closed_text(constraint: ConstraintExplanation) -> str:
    domains, nodes = constraint.rejected_domain_count, constraint.rejected_node_count
    if not _is_hard(constraint.constraint) or not (nodes or domains):
        return ""
    they = "passes" if nodes == 1 else "pass"
    return (
        f"{counted(domains, 'domain')}; it refuses {counted(nodes, 'node')} that {they} the "
        f"constraints before it, {constraint.rejected_alone_node_count:,} of them alone"
    )


def _cells(
    constraint: SpreadConstraint,
    because: int,
    domain: DomainExplanation,
    missing_keys: Sequence[str],
) -> list[object]:
    pods: object = domain.pod_count
    if domain.reserved_pod_count:
        pods = f"{pods} ({domain.reserved_pod_count} reserved)"
    counts = bool(domain.eligible_node_count or domain.fitting_node_count)
    if _is_hard(constraint):
        verdict = "-" if not counts else "open" if domain.allowed else "closed"
    elif not domain.HasField("scores"):
        verdict = "-"
    else:
        low, high = domain.scores.lowest, domain.scores.highest
        verdict = f"{low}" if low == high else f"{low} - {high}"
    return [
        label_text(domain.value),
        pods,
        domain.node_count,
        domain.eligible_node_count,
        domain.usable_node_count,
        domain.skew if counts else "-",
        verdict,
        "; ".join(_reasons(constraint, because, domain, missing_keys)) or "-",
    ]


def _reasons(
    constraint: SpreadConstraint,
    because: int,
    domain: DomainExplanation,
    missing_keys: Sequence[str],
) -> Iterator[str]:
    if not domain.allowed:
        yield f"skew {domain.skew} > maxSkew {constraint.max_skew}"
    if domain.holds_minimum and because == explanation_pb2.MINIMUM_REASON_LOWEST:
        yield "holds the minimum"
    if excluded := _excluded(domain.excluded, missing_keys):
        yield f"not counted: {', '.join(excluded)}"
    if domain.uncounted_pod_count:
        yield f"{domain.uncounted_pod_count} pods not counted"
    if domain.node_reasons:
        yield _reason_counts(domain.node_reasons)


def _excluded(excluded: ExcludedNodes, missing_keys: Sequence[str]) -> list[str]:
    keys = " or ".join(map(label_text, missing_keys)) or "another key"
    counts = ((getattr(excluded, name), why.format(keys=keys)) for name, why in _EXCLUDED.items())
    return [f"{nodes} {why}" for nodes, why in counts if nodes]


def _findings(found: Explanation) -> Iterator[str]:
    for finding in found.findings:
        constrained = finding.HasField("constraint_index")
        where = f"constraint {finding.constraint_index}: " if constrained else ""
        yield f"{where}{finding_label(finding)}: {finding.text}"


def finding_label(finding: explanation_pb2.Finding) -> str:
    """Code of a finding as lint prints it: ``SelfMismatch``."""
    return documents.constant_of(explanation_pb2.FindingCode, finding.code)


def suggestion_text(suggestion: Suggestion) -> str:
    """A suggestion, with how many nodes would take the pod and what was not looked at for it."""
    would = f"{counted(suggestion.fitting_node_count, 'node')} would take it"
    if gaps := gaps_text(suggestion.not_modelled):
        return f"{suggestion.text}: at most {would} ({gaps})"
    return f"{suggestion.text}: {would}"


def whose_text(found: Explanation) -> str:
    """Whose pods those constraints count that close domains to a pod which fits nowhere."""
    if found.fitting_node_count:
        return ""
    closing = [each for each in found.constraints if each.rejected_domain_count]
    counts = ((each.index, counted_text(each.counted)) for each in closing)
    return "; ".join(f"constraint {index}: {text}" for index, text in counts if text)


def fits_text(found: Explanation) -> str:
    """Number of nodes that a pod fits, and of those that spreading alone leaves."""
    text = fitting_text(found.fitting_node_count, found.node_count, found.not_modelled)
    if found.feasible_node_count != found.fitting_node_count:
        text += f" (spreading alone leaves {found.feasible_node_count})"
    return text


def fitting_text(fitting: int, nodes: int, not_modelled: Sequence[str]) -> str:
    """So many nodes; at most, where something was not looked at that could refuse them."""
    most = "at most " if fitting and is_bound(not_modelled) else ""
    return f"{most}{fitting:,} of {counted(nodes, 'node')}"


def scheduler_text(condition: PodScheduledCondition | None) -> str:
    """The scheduler's own sentence, and how long ago it was."""
    if condition is None:
        return ""
    text = condition.message or condition.reason
    if text and condition.HasField("last_transition_time"):
        past = datetime.now(UTC) - condition.last_transition_time.ToDatetime(tzinfo=UTC)
        text += f" ({output.age(past.total_seconds())} ago)"
    return text


def _reason_counts(reasons: Sequence[NodeReason]) -> str:
    return ", ".join(f"{each.node_count} {each.reason}" for each in reasons)
