"""ExplainPod: why a pod fits where it does, and what would let it in elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, TypeAlias

from topospread_client import _arguments as arguments
from topospread_client import _decoding as decoding
from topospread_client import _requests as requests
from topospread_client import _rpcs as rpcs
from topospread_client._answers import Answer, ResponseMeta
from topospread_client._operations import ClientSession, Operation, call
from topospread_proto.v1 import decision_service_pb2 as pb

if TYPE_CHECKING:
    from topospread_client._answers import EvaluatePodResponse, SpreadConstraint, Verdict
    from topospread_client._enums import ConstraintValidation, FindingCode, Fit, MinimumReason
    from topospread_client._requests import Consistency, PodSource, Settings


@dataclass(frozen=True, slots=True)
class NodeReason:
    """Number of nodes that are refused for one reason, in upstream's words."""

    reason: str
    node_count: int


@dataclass(frozen=True, slots=True)
class ExcludedNodes:
    """Number of nodes that a constraint does not count, each by the first reason for it."""

    missing_key_count: int
    affinity_count: int
    cordoned_count: int
    tainted_count: int


@dataclass(frozen=True, slots=True)
class ScoreRange:
    """Range of the scores of some nodes, 0 to 100."""

    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class DomainExplanation:
    """Domain of a constraint, with its counts and verdict.

    Attributes:
        value: of the topology key.
        pod_count: matching pods that count, with those of `reserved_pod_count`.
        reserved_pod_count: reservations for pods that match.
        uncounted_pod_count: matching pods on nodes that do not count.
        node_count: nodes with this value.
        eligible_node_count: those of them that count.
        excluded: those that do not.
        node_reasons: nodes that the scheduler's other filters refuse, most frequent reason first.
        usable_node_count: nodes that these leave.
        fitting_node_count: nodes that these and all hard constraints leave.
        skew: matching pods here once the pod came, less the global minimum.
        holds_minimum: no eligible domain has fewer pods.
        allowed: whether the constraint lets the pod come here.
        scores: of soft constraints, those of the fitting nodes; None without any.
    """

    value: str
    pod_count: int
    reserved_pod_count: int
    uncounted_pod_count: int
    node_count: int
    eligible_node_count: int
    excluded: ExcludedNodes
    node_reasons: tuple[NodeReason, ...]
    usable_node_count: int
    fitting_node_count: int
    skew: int
    holds_minimum: bool
    allowed: bool
    scores: ScoreRange | None


@dataclass(frozen=True, slots=True)
class MinimumExplanation:
    """Global minimum of a constraint.

    Attributes:
        value: as the skew uses it.
        reason: why it is that.
        lowest_pod_count: the fewest pods of an eligible domain.
        lowest_domain_count: how many eligible domains have so few.
        note: why it is taken as 0, or why its domains take no pod; else empty.
    """

    value: int
    reason: MinimumReason | None
    lowest_pod_count: int
    lowest_domain_count: int
    note: str


@dataclass(frozen=True, slots=True)
class ConstraintExplanation:
    """Explanation of one constraint.

    Attributes:
        index: position in the pod's list, or in the profile's.
        self_match: the pod adds itself to the domain it goes to.
        keyless_node_count: nodes that lack the topology key.
        eligible_node_count: nodes that count.
        excluded: nodes that have the key and do not count.
        domain_count: values that a node has.
        eligible_domain_count: those with an eligible node.
        rejected_domain_count: those that are closed to the pod.
        rejected_node_count: nodes that no earlier constraint refuses and this one does.
        rejected_alone_node_count: usable nodes that nothing else refuses.
        weight: of soft constraints, by what pods are multiplied in the score.
        domains: those with the fewest pods, then those with the most.
        leading_domain_count: how many of `domains` stand before those that are left out.
        unlisted_domain_count: how many are left out.
        usable_domain_count: domains with a node that counts and that the other filters leave.
    """

    index: int
    constraint: SpreadConstraint
    self_match: bool
    keyless_node_count: int
    eligible_node_count: int
    excluded: ExcludedNodes
    domain_count: int
    eligible_domain_count: int
    minimum: MinimumExplanation
    rejected_domain_count: int
    rejected_node_count: int
    rejected_alone_node_count: int
    weight: float
    domains: tuple[DomainExplanation, ...]
    leading_domain_count: int
    unlisted_domain_count: int
    usable_domain_count: int


@dataclass(frozen=True, slots=True)
class SetMaxSkew:
    """Suggestion to change maxSkew."""

    max_skew: int


@dataclass(frozen=True, slots=True)
class SetMinDomains:
    """Suggestion to change minDomains."""

    min_domains: int


@dataclass(frozen=True, slots=True)
class AddDomains:
    """Suggestion to add domains, each with a node that the pod can use."""

    domain_count: int


@dataclass(frozen=True, slots=True)
class RemovePods:
    """Suggestion to remove matching pods from one domain."""

    domain: str
    pod_count: int


@dataclass(frozen=True, slots=True)
class SetNodeTaintsPolicy:
    """Suggestion to change nodeTaintsPolicy."""

    node_taints_policy: str


@dataclass(frozen=True, slots=True)
class SetNodeAffinityPolicy:
    """Suggestion to change nodeAffinityPolicy."""

    node_affinity_policy: str


@dataclass(frozen=True, slots=True)
class LabelNodes:
    """Suggestion to label one of the nodes without the topology key, for example with `domain`."""

    node_count: int
    domain: str


@dataclass(frozen=True, slots=True)
class SetWhenUnsatisfiable:
    """Suggestion to change whenUnsatisfiable."""

    when_unsatisfiable: str


@dataclass(frozen=True, slots=True)
class UncordonNodes:
    """Suggestion to uncordon nodes that the pod could go to then."""

    node_count: int


@dataclass(frozen=True, slots=True)
class AddToleration:
    """Suggestion to tolerate a taint, as kubectl writes it."""

    taint: str


Change: TypeAlias = (
    SetMaxSkew
    | SetMinDomains
    | AddDomains
    | RemovePods
    | SetNodeTaintsPolicy
    | SetNodeAffinityPolicy
    | LabelNodes
    | SetWhenUnsatisfiable
    | UncordonNodes
    | AddToleration
)


@dataclass(frozen=True, slots=True)
class SuggestedChange:
    """Change to the pod, to other pods or to nodes; all but one of its fields are None.

    Attributes:
        constraint_index: None for a change that is of no constraint.
        topology_key: of the constraint.
    """

    constraint_index: int | None
    topology_key: str
    set_max_skew: SetMaxSkew | None
    set_min_domains: SetMinDomains | None
    add_domains: AddDomains | None
    remove_pods: RemovePods | None
    set_node_taints_policy: SetNodeTaintsPolicy | None
    set_node_affinity_policy: SetNodeAffinityPolicy | None
    label_nodes: LabelNodes | None
    set_when_unsatisfiable: SetWhenUnsatisfiable | None
    uncordon_nodes: UncordonNodes | None
    add_toleration: AddToleration | None

    @property
    def change(self) -> Change | None:
        """Change that is present; None for one that this client does not know."""
        changes = (getattr(self, each.name) for each in fields(self)[2:])
        return next((each for each in changes if each is not None), None)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Changes that together let the pod in, as evaluating it again has shown.

    Attributes:
        text: description for people.
        fitting_node_count: nodes that the pod fits then.
    """

    changes: tuple[SuggestedChange, ...]
    text: str
    fitting_node_count: int


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding about a constraint, or about a pod.

    Attributes:
        constraint_index: None for one about the pod as a whole.
        text: description for people.
    """

    code: FindingCode
    constraint_index: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Explanation of where a pod fits.

    Attributes:
        verdict: PreFilter's.
        node_count: nodes in the cluster.
        feasible_node_count: nodes that pass Filter.
        fitting_node_count: those of them that the scheduler's other filters leave.
        message: kube-scheduler's when no node fits; else empty.
        node_reasons: nodes that the other filters refuse, most frequent reason first.
        defaulted: the constraints are the profile's.
        suggestions: what would let the pod in; only when no node fits.
        not_modelled: checks that were not asked for, and features of the pod that were not
            considered.
    """

    verdict: Verdict
    node_count: int
    feasible_node_count: int
    fitting_node_count: int
    message: str
    node_reasons: tuple[NodeReason, ...]
    defaulted: bool
    constraints: tuple[ConstraintExplanation, ...]
    suggestions: tuple[Suggestion, ...]
    findings: tuple[Finding, ...]
    not_modelled: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ExplainPodResponse(Answer):
    """Response of explain_pod.

    Attributes:
        domain_limit: greatest number of domains listed of each constraint.
        evaluation: as of evaluate_pod, but by Filter and the filters of `fit` together; a node that
            lacks several resources counts in the verdict of each.
    """

    explanation: Explanation
    domain_limit: int
    evaluation: EvaluatePodResponse


def explain_pod(
    session: ClientSession,
    pod: PodSource,
    *,
    fit: Fit | None = None,
    domain_limit: int | None = None,
    top_k: int | None = None,
    skip_suggestions: bool = False,
    cluster: str | None = None,
    settings: Settings | None = None,
    consistency: Consistency | None = None,
    validation: ConstraintValidation | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[ExplainPodResponse]:
    """Explain by constraint and domain where a pod may go, and what would let it in elsewhere.

    Args:
        pod: a message, a manifest, bytes of a v1.Pod, or the name of a pod in the state.
        fit: filters beside spreading; None applies `Fit.NODE_AND_RESOURCES`.
        domain_limit: domains to list of each constraint, at most 1000; None lists 20.
        top_k: best nodes to name, at most 1000; None names 5.
        skip_suggestions: leave out what would let the pod in, which takes the most time.
        cluster: None takes the client's.
        settings: None takes the profile of the pod's schedulerName.
        consistency: None answers from the newest snapshot at hand.
        validation: `ConstraintValidation.STRICT` refuses what an API server would refuse in the
            pod's constraints, and fields of manifests that Kubernetes does not have.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span; None takes the current OpenTelemetry span.

    Raises:
        InvalidRequest: all errors in the pod and the settings.
        NotFound: the cluster or the pod is not in the state.
        TopospreadClientError: any other failure of the call.
    """
    request = arguments.request(
        pb.ExplainPodRequest,
        cluster=cluster or session.cluster,
        pod=requests.pod_source(pod, validation=validation),
        settings=requests.settings_message(settings),
        consistency=requests.consistency_message(consistency),
        validation=requests.validation_message(validation),
        fit=requests.fit_message(fit),
        domain_limit=domain_limit or 0,
        top_k=top_k or 0,
        skip_suggestions=skip_suggestions,
    )
    reply = yield from call(rpcs.EXPLAIN_POD, request, timeout, traceparent)
    meta = decoding.value(ResponseMeta, reply.message.meta)
    evaluation = decoding.evaluated(reply.message.evaluation, reply.traceparent, meta=meta)
    return decoding.answer(ExplainPodResponse, reply, meta=meta, evaluation=evaluation)
