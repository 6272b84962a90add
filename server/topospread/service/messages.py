"""Messages that several responses share: metadata, verdicts, constraints, reservations."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from topospread.codec.pods import observed_messages
from topospread.codec.reservations import selector_message
from topospread.kube.objects import HONOR, IGNORE
from topospread.kube.selectors import selector_text
from topospread.spread.rollouts import RolloutEnd
from topospread.spread.verdicts import Code
from topospread_proto.v1 import common_pb2, explanation_pb2
from topospread_proto.v1 import placement_service_pb2 as pb

if TYPE_CHECKING:
    from topospread.index.changes import ReservationRow
    from topospread.kube.versions import KubernetesVersion
    from topospread.replica.replica import Replica
    from topospread.replica.view import View
    from topospread.spread.constraints import Constraint
    from topospread.spread.rollouts import RolloutOutcome
    from topospread.spread.verdicts import Status


NO_HISTORY: Final = "none"
"""The store identity of a cluster of which the store holds nothing."""

_ID_BYTES: Final = 8

ENDS: Final = {
    RolloutEnd.COMPLETES: explanation_pb2.ROLLOUT_END_COMPLETES,
    RolloutEnd.MAY_WAIT: explanation_pb2.ROLLOUT_END_MAY_WAIT,
    RolloutEnd.WAITS: explanation_pb2.ROLLOUT_END_WAITS,
    RolloutEnd.UNKNOWN: explanation_pb2.ROLLOUT_END_UNSPECIFIED,
}
"""Ends of rollouts, as answers have them."""

_CODES: Final = {code: common_pb2.VerdictCode.Value(f"VERDICT_CODE_{code.name}") for code in Code}


def meta_of(
    view: View, replica: Replica, version: KubernetesVersion | None = None
) -> common_pb2.ResponseMeta:
    """The metadata of the state behind a response.

    Args:
        view: the state.
        replica: follows it.
        version: of the rules that were followed; None: the state's own.
    """
    return common_pb2.ResponseMeta(
        revision=view.token,
        store_unreachable_for=unreachable_for(replica),
        observed=observed_messages(view.observed),
        kubernetes_version=str(version or view.snapshot.version),
    )


def revision_meta(token: str, version: KubernetesVersion | None = None) -> common_pb2.ResponseMeta:
    """The metadata of a response of the store itself, which was reached just now.

    The version is that of the rules by which a pod was judged before.
    """
    return common_pb2.ResponseMeta(
        revision=token, kubernetes_version="" if version is None else str(version)
    )


def unreachable_for(replica: Replica) -> Duration | None:
    """The time for which the store has been unreachable; None while it is reachable."""
    seconds = replica.stale_for
    if not seconds:
        return None
    duration = Duration()
    duration.FromNanoseconds(int(seconds * 1e9))
    return duration


def verdict_message(status: Status) -> common_pb2.Verdict:
    """Encode a status."""
    return common_pb2.Verdict(code=_CODES[status.code], reasons=status.reasons)


def constraint_message(constraint: Constraint) -> common_pb2.SpreadConstraint:
    """Encode a constraint, with the id that it has in every response."""
    message = common_pb2.SpreadConstraint(
        namespace=constraint.group.namespace,
        topology_key=constraint.topology_key,
        when_unsatisfiable=constraint.when_unsatisfiable,
        label_selector=selector_message(constraint.group.selector),
        selector_text=selector_text(constraint.group.selector),
        max_skew=constraint.max_skew,
        min_domains=constraint.min_domains,
        node_affinity_policy=HONOR if constraint.honors_affinity else IGNORE,
        node_taints_policy=HONOR if constraint.honors_taints else IGNORE,
    )
    written = message.SerializeToString(deterministic=True)
    message.id = blake2b(written, digest_size=_ID_BYTES).hexdigest()
    return message


def timestamp(milliseconds: int) -> Timestamp | None:
    """Encode a point in time; 0 is none."""
    if not milliseconds:
        return None
    message = Timestamp()
    message.FromMilliseconds(milliseconds)
    return message


def reservation_message(namespace: str, name: str, row: ReservationRow) -> pb.Reservation:
    """Encode a reservation."""
    return pb.Reservation(
        pod=common_pb2.PodReference(namespace=namespace, name=name, uid=row.uid),
        node=row.node_name,
        labels=dict(row.labels),
        expire_time=timestamp(row.expires_at),
        reservation_id=row.id,
    )


def rollout_outcome_message(outcome: RolloutOutcome) -> explanation_pb2.RolloutOutcome:
    """What becomes of a rollout."""
    made = explanation_pb2.RolloutOutcome(
        end=ENDS[outcome.end],
        proven=outcome.proven,
        replica_count=outcome.replicas,
        surge_count=outcome.rollout.surge(outcome.replicas),
        unavailable_count=outcome.rollout.unavailable(outcome.replicas),
        text=outcome.text,
        course_count=outcome.courses,
        waiting_course_count=outcome.waiting,
    )
    if (wait := outcome.wait) is not None:
        made.old_pod_count, made.new_pod_count = wait.old, wait.new
        made.message, made.lacks_resources = wait.message, wait.lacks_resources
    return made
