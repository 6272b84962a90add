"""Lints a workload with what a cluster's state tells of the pod that it would make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.kube.objects import LabelSelector
from topospread.kube.selectors import SelectorError, compile_selector
from topospread.kube.versions import parse_version
from topospread.service.explaining.explain import explain
from topospread.service.fit.question import Fit
from topospread.service.messages import ENDS
from topospread.spread.linting.capacities import DomainCapacity, ReplicaCapacity
from topospread.spread.linting.engine import RULES, Knowledge, lint
from topospread.spread.linting.workloads import DomainNumbers
from topospread.spread.rollouts import RolloutEnd, RolloutOutcome, RolloutWait
from topospread.spread.settings import RELEASES
from topospread_proto.v1 import explanation_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.kube.objects import SpreadConstraint
    from topospread.kube.rollouts import Rollout
    from topospread.kube.selectors import Selector
    from topospread.service.decisions.engine import Engine
    from topospread.service.decisions.request import DecisionRequest
    from topospread.spread.linting.catalog import LintFinding
    from topospread.spread.linting.workloads import LintedWorkload
    from topospread_proto.v1.decision_service_pb2 import ExplainPodResponse


_ENDS: Final = {number: end for end, number in ENDS.items()}
_RULES: Final = {pb.FindingCode.Value(f"FINDING_CODE_{name}"): rule for name, rule in RULES.items()}


def lint_at(
    engine: Engine, request: DecisionRequest, workload: LintedWorkload, pod: bytes
) -> list[LintFinding]:
    """All findings on a workload, with what the newest state at hand tells.

    Args:
        engine: judges the pod.
        request: without its pod.
        workload: that is linted.
        pod: that it would make, as the bytes of a v1.Pod.

    Raises:
        As explain.
    """
    asked = engine.with_requests(request, pod)
    found = explain(
        engine,
        request,
        asked,
        fit=Fit.NODE,
        limit=1,
        advise=False,
        replicas=replicas_of(workload),
        rollout=rollout_of(workload),
        wanted=workload.replicas,
    )
    defaults = found.resolved.cycle.rules.profile.defaults
    return lint(workload, knowledge_of(found.response, rollout_of(workload), defaults))


def knowledge_of(
    response: ExplainPodResponse,
    rollout: Rollout | None = None,
    defaults: Sequence[SpreadConstraint] | None = None,
) -> Knowledge:
    """What an explanation of a workload's pod tells of its cluster.

    Args:
        response: with at least one domain of each constraint.
        rollout: of the workload, as the question had it.
        defaults: the profile's constraints; None where they are not known.
    """
    explanation = response.explanation
    version = parse_version(response.meta.kubernetes_version)
    of_constraints = {
        each.constraint_index: _capacity(each)
        for each in response.capacities
        if each.HasField("constraint_index")
    }
    numbers = {
        each.index: DomainNumbers(
            each.eligible_domain_count,
            each.usable_domain_count,
            each.minimum.lowest_pod_count,
            of_constraints.get(each.index),
        )
        for each in explanation.constraints
    }
    apart = {
        each.topology_key: _capacity(each)
        for each in response.capacities
        if not each.HasField("constraint_index")
    }
    stated = [
        rule.found(each.constraint_index if each.HasField("constraint_index") else -1, each.text)
        for each in explanation.findings
        if (rule := _RULES.get(each.code)) is not None
    ]
    return Knowledge(
        {} if explanation.defaulted else numbers,
        stated,
        defaults,
        version if version in RELEASES else None,
        apart,
        _outcome(response.rollout, rollout) if response.HasField("rollout") else None,
    )


def _outcome(message: pb.RolloutOutcome, rollout: Rollout | None) -> RolloutOutcome | None:
    if rollout is None:
        return None
    wait = RolloutWait(
        message.old_pod_count, message.new_pod_count, message.message, message.lacks_resources
    )
    end = _ENDS[message.end]
    return RolloutOutcome(
        end,
        rollout,
        message.replica_count,
        wait if end in (RolloutEnd.WAITS, RolloutEnd.MAY_WAIT) else None,
        message.proven,
        message.course_count,
        message.waiting_course_count,
    )


def _capacity(message: pb.ReplicaCapacity) -> ReplicaCapacity:
    return ReplicaCapacity(
        tuple(
            DomainCapacity(
                each.domain_count, each.replica_count, each.free_place_count, each.usable
            )
            for each in message.domains
        ),
        message.keyless_usable_node_count,
    )


def replicas_of(workload: LintedWorkload) -> Selector | None:
    """Selects the pods that a workload has now; None where no rule asks for them."""
    if workload.rollout is None and not workload.repulsions:
        return None
    given = workload.selector or LabelSelector(tuple(sorted(workload.pod.labels.items())))
    try:
        selector = compile_selector(given)
    except SelectorError:
        return None
    return None if selector.empty or selector.nothing else selector


def rollout_of(workload: LintedWorkload) -> Rollout | None:
    """How a workload's pods are replaced by others that may go elsewhere; None where they are not.

    A DaemonSet's stay on their nodes.
    """
    return None if workload.kind == "DaemonSet" else workload.rollout
