"""The engine of all decisions: turns a request into a scheduling cycle."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from topospread.checkpoints import checkpoint, will_take_long
from topospread.codec.demands import DemandReader
from topospread.codec.frames import framed
from topospread.codec.pods import pod_from_proto
from topospread.codec.stored import object_from_stored
from topospread.errors import (
    FieldViolation,
    InvalidPod,
    InvalidRequest,
    PodNotFound,
)
from topospread.kube.demands import NO_DEMAND
from topospread.kube.objects import Pod
from topospread.kube.validation import validate_pod
from topospread.kube.violations import violations_text
from topospread.service.decisions.cycle import Cycle
from topospread.service.decisions.pods import (
    JudgedPod,
    Limits,
    PodShape,
    PodShapes,
    ShapedPod,
    check_size,
    needed_groups,
)
from topospread.service.decisions.request import NO_OVERRIDE, PodRef, StageTimings
from topospread.spread.constraints import drop_disabled_fields
from topospread.spread.filtering import PodMove
from topospread.spread.settings import DEFAULT_PROFILE, NEWEST
from topospread.store.api import get_one
from topospread.store.model import Key, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from topospread.codec.frames import UnreadPod
    from topospread.index.groups import Group
    from topospread.index.pod_classes import PodClass
    from topospread.index.snapshot import Snapshot
    from topospread.kube.demands import Demand
    from topospread.kube.versions import KubernetesVersion
    from topospread.replica.replica import Replica
    from topospread.replica.replicas import Replicas
    from topospread.replica.view import View
    from topospread.service.decisions.cycle import CycleCache
    from topospread.service.decisions.pods import EffectiveConstraints
    from topospread.service.decisions.request import (
        DecisionRequest,
        PodOnNode,
        ProfileRegistry,
        SettingsOverride,
    )
    from topospread.spread.settings import Rules
    from topospread.spread.topology import GroupKey
    from topospread.store.api import Reader
    from topospread.store.model import StoredObject


COUNTED_AT_ONCE: Final = 16
"""Selectors: one takes some 0.2 ms at 50,000 pods, and nothing else changes meanwhile."""

MATCHED_AT_ONCE: Final = 16_000
"""Label sets times selectors: each may have to look at all of them, at a microsecond each."""


@dataclass(slots=True, eq=False)
class ResolvedCycle:
    """A cycle, and how it was made for a request.

    Attributes:
        replica: follows the cluster whose state it is judged at.
        timings: how long the stages of the decision took; each is filled in when it is done.
        cycle_id: names the cycle for later calls of this process; empty when it is not kept.
        remade: the caller's cycle was unknown here.
    """

    cycle: Cycle
    replica: Replica
    timings: StageTimings
    cycle_id: str = ""
    remade: bool = False


class PodWithRequests(NamedTuple):
    """A pod, the resources it requests, and the node it is bound to; empty while it is pending.

    Attributes:
        encoded: the bytes of the v1.Pod.
    """

    pod: ShapedPod
    demand: Demand
    node: str
    encoded: bytes


class Engine:
    """Turns requests into cycles: the pod, its rules, a fresh enough view, the groups it needs."""

    def __init__(
        self,
        replicas: Replicas,
        reader: Reader,
        rules: ProfileRegistry,
        cycles: CycleCache,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.perf_counter,
        *,
        remembers: bool = True,
    ) -> None:
        self.replicas = replicas
        self.rules = rules
        self.cycles = cycles
        self.limits = limits or Limits()
        self.clock = clock
        self.remembers = remembers
        self._reader = reader
        self._shapes = PodShapes()
        self._demands = DemandReader()

    def new_cycle(self, request: DecisionRequest) -> ResolvedCycle:
        """A new cycle for the request's pod.

        Raises:
            InvalidRequest: no pod, too much, unknown settings, or (with `validate`) constraints
                that the API server would refuse.
            NotFound: the cluster or the pod is not known.
            Unavailable, DeadlineExceeded, RevisionUnavailable: see Replicas.resolve.
        """
        given = request.pod
        if given is None:
            text = "give a pod, or its name in the state"
            raise InvalidRequest.at("pod", text, "Required value")
        if request.add_pods or request.remove_pods:
            self._check_what_ifs(request)
        # Before the cluster is looked up: a pod that does not parse is wrong wherever it is judged.
        if not isinstance(given, PodRef):
            given = self.intern(given)
        else:
            will_take_long()  # the store is asked for it
        started = self.clock()
        replica, view = self.replicas.resolve(
            request.cluster, request.consistency, request.deadline
        )
        pod = given if isinstance(given, ShapedPod) else self._named(request.cluster, given)
        rules = self.rules_of(pod, request, view.snapshot.version)
        effective = pod.shape.effective_constraints(rules, view.snapshot)
        groups = effective.counted_in(view.snapshot)
        demand = request.demand
        if groups is None or (demand is not NO_DEMAND and demand.has_terms):
            asked = JudgedPod(pod, rules, demand)
            view = self.with_groups_counted((asked,), replica, view)
            effective = pod.shape.effective_constraints(rules, view.snapshot)
        else:
            _note_use(groups, view.snapshot)
        cycle = self.cycle_at(pod, rules, effective, request, view)
        return ResolvedCycle(cycle, replica, StageTimings(self.clock() - started))

    def knows(self, pod: UnreadPod) -> bool:
        """Whether the pod's shape is kept, so that it need not be parsed."""
        return self._shapes.get(pod.key) is not None

    def intern(self, pod: UnreadPod | ShapedPod) -> ShapedPod:
        """A pod with its shape, which is parsed and kept when it is new.

        Raises:
            InvalidRequest: the pod does not parse, or costs far more than any real one.
        """
        if isinstance(pod, ShapedPod):
            return pod
        shape = self._shapes.get(pod.key)
        if shape is None:
            try:
                parsed = pod.parse(self.limits.terms)
            except InvalidRequest as wrong:
                raise wrong.of_pod() from wrong
            checkpoint()
            check_size(parsed, self.limits)
            shape = PodShape(parsed, pod.size)
            self._shapes.put(pod.key, shape)
        return ShapedPod(shape, pod.name, pod.uid)

    def template_of(self, pod_class: PodClass) -> tuple[PodShape, Demand]:
        """The shape of the pods of a class, and what they demand of their nodes."""
        shape = self.intern(framed(pod_class.template)).shape
        return shape, self._demands.of(pod_class.template)[0]

    def demand_of(self, encoded: bytes) -> Demand:
        """What the pod of some bytes demands of its node."""
        return self._demands.of(encoded)[0]

    def with_requests(self, request: DecisionRequest, pod: bytes | PodRef) -> PodWithRequests:
        """A pod with the resources that it requests; a named one is read after the request's wait.

        Args:
            request: the cluster, the freshness and the deadline.
            pod: its bytes, or its name in the state.

        Raises:
            InvalidRequest: it does not parse, or costs far more than any real one.
            NotFound, Unavailable, DeadlineExceeded, RevisionUnavailable: see stored() and
                Replicas.resolve.
        """
        if isinstance(pod, PodRef):
            self.replicas.resolve(request.cluster, request.consistency, request.deadline)
        encoded = self.encoded(request.cluster, pod)
        try:
            shaped = self.intern(framed(encoded))
            demand, node = self._demands.of(encoded)
        except InvalidRequest as wrong:
            raise wrong.of_pod() from wrong
        if isinstance(pod, PodRef):
            # Where it runs is where it was sent: a copy may go elsewhere.
            demand = replace(demand, node_name="")
        return PodWithRequests(shaped, demand, node, encoded)

    def resume_cycle(self, request: DecisionRequest) -> ResolvedCycle:
        """The cycle that a request names, made again from its pod when it is unknown here.

        Raises:
            CycleExpired: it is unknown and there is no pod.
            And what :meth:`new_cycle` raises.
        """
        if not request.cycle:
            return self.new_cycle(request)
        if request.pod is not None and not isinstance(request.pod, PodRef):
            request = request._replace(pod=self.intern(request.pod))
        known = self.cycles.get(request.cycle)
        if known is not None and known.cluster == request.cluster:
            replica, _ = self.replicas.resolve(
                request.cluster, request.consistency, request.deadline
            )
            return ResolvedCycle(known, replica, StageTimings(), request.cycle)
        if request.pod is None:
            raise self.cycles.expired(request.cycle)
        made = self.new_cycle(request)
        cycle = made.cycle.alone()
        identifier = self.cycles.put(cycle)
        return ResolvedCycle(cycle, made.replica, made.timings, identifier, remade=True)

    def _named(self, cluster: str, named: PodRef) -> ShapedPod:
        """A pod of the state, with a shape of its own that is not kept."""
        pod = self._stored_pod(cluster, named)
        check_size(pod, self.limits)
        return ShapedPod(PodShape(pod), pod.name, pod.uid)

    def encoded(self, cluster: str, pod: bytes | PodRef) -> bytes:
        """The bytes of a pod; see stored() for a named one."""
        if isinstance(pod, bytes):
            return pod
        return object_from_stored(self.stored(cluster, pod)).pod.SerializeToString()

    def _stored_pod(self, cluster: str, named: PodRef) -> Pod:
        return pod_from_proto(object_from_stored(self.stored(cluster, named)).pod)

    def stored(self, cluster: str, named: PodRef) -> StoredObject:
        """A pod of the state, which the caller has resolved before.

        Else a pod would be missing, or be judged as it was, that came while the call waited.

        Raises:
            NotFound: there is none of the name, or it has another uid.
        """
        stored = get_one(self._reader, cluster, Key(Kind.POD, named.namespace, named.name))
        if stored is None or (named.uid and stored.uid != named.uid):
            uid = f" (uid {named.uid})" if named.uid else ""
            name = f"{named.namespace}/{named.name}"
            text = f"pod {name}{uid} is not in cluster {cluster!r}"
            raise PodNotFound(text, "Pod", name, cluster)
        return stored

    def rules_of(
        self, given: ShapedPod, request: DecisionRequest, version: KubernetesVersion
    ) -> Rules:
        """The rules by which a pod is judged in a cluster of a version.

        A pod without a uid is no API server's yet, and judged as one would store it.

        Raises:
            InvalidRequest: unknown settings, or (with `validate`) constraints that the API server
                would refuse.
        """
        pod = given.shape.pod
        rules = self.rules_for(request.settings, pod.scheduler_name, version)
        if not given.uid:
            rules = rules.for_manifests
        if request.validate:
            checkpoint()
            # As on creation: fields whose gate is off are dropped before anything is looked at.
            created = drop_disabled_fields(pod.constraints, rules.gates)
            violations = validate_pod(replace(pod, constraints=created))
            if violations:
                raise InvalidPod(violations_text(violations), violations)
        return rules

    def check_settings(self, settings: SettingsOverride) -> None:
        """Refuse settings that no cluster's pods could be judged by; raises as rules_for()."""
        self.rules_for(settings, "", NEWEST)

    def rules_for(
        self, settings: SettingsOverride, scheduler_name: str, version: KubernetesVersion
    ) -> Rules:
        """The rules by which stored pods of a scheduler are judged in a cluster of a version.

        Raises:
            InvalidRequest: unknown settings, or too many default constraints.
        """
        if settings is NO_OVERRIDE:
            known = self.rules.known.get((version, scheduler_name or DEFAULT_PROFILE))
            if known is not None:
                return known
        rules = self.rules.rules_for(settings, scheduler_name, version)
        if settings.profile is not rules.profile:
            return rules  # those of the configuration are the operator's own business
        defaults, most = len(rules.profile.default_constraints), self.limits.constraints
        if defaults > most:
            text = f"{defaults} constraints, at most {most} are judged"
            path = "settings.args.defaultConstraints"
            raise InvalidRequest.of([FieldViolation(path, text, "Too many")])
        return rules

    @staticmethod
    def with_groups_counted(asked: Sequence[JudgedPod], replica: Replica, view: View) -> View:
        """A view that counts all groups the pods need; it may be newer than the one given."""
        kept = False
        while True:
            snapshot = view.snapshot
            groups = needed_groups(asked, snapshot)
            counted = [each for group in groups if (each := snapshot.groups.get(group))]
            if len(counted) == len(groups):
                _note_use(counted, snapshot)
                if not kept:
                    return view
                # It has no others: a long computation would keep the counts of other callers.
                return replace(view, snapshot=snapshot.only(groups))
            # Workloads of the newer view may select other pods, so look again.
            view = _kept(groups, replica)
            kept = True

    def cycle_at(
        self,
        pod: ShapedPod,
        rules: Rules,
        effective: EffectiveConstraints,
        request: DecisionRequest,
        view: View,
    ) -> Cycle:
        """A pod's cycle at a view that counts its groups; what is held for it counts not."""
        moves = self._moves(request, view) if request.add_pods or request.remove_pods else ()
        parsed = pod.shape.pod
        reservations = view.snapshot.reservations
        if reservations.size:
            held = reservations.of(parsed.namespace, pod.name, pod.uid)
            if held is not None:
                asked = JudgedPod(pod, rules, request.demand)
                groups = needed_groups((asked,), view.snapshot)
                others = view.snapshot.without(parsed.namespace, held, groups)
                view = replace(view, snapshot=others)
        return Cycle(
            request.cluster,
            parsed,
            rules,
            effective,
            view,
            pod.name,
            pod.uid,
            moves,
            demand=request.demand,
        )

    def _check_what_ifs(self, request: DecisionRequest) -> None:
        if len(request.add_pods) + len(request.remove_pods) > self.limits.what_ifs:
            text = f"at most {self.limits.what_ifs} together with removePods"
            raise InvalidRequest.at("addPods", text, "Too many")

    def _moves(self, request: DecisionRequest, view: View) -> tuple[PodMove, ...]:
        def placed(moves: Sequence[PodOnNode], delta: int) -> Iterable[PodMove]:
            for move in moves:
                pod = move.pod
                if not isinstance(pod, Pod):
                    checkpoint()
                    pod = self._stored_pod(request.cluster, pod)
                yield PodMove(pod, view.snapshot.slot(move.node or pod.node_name), delta)

        return (*placed(request.add_pods, +1), *placed(request.remove_pods, -1))


def _kept(groups: set[GroupKey], replica: Replica) -> View:
    """A view that counts all of them: new ones take time, so they are counted some at a time.

    Each step asks for those before it, too, lest they are evicted.
    """
    snapshot = replica.current_view().snapshot
    new = snapshot.missing(groups)
    known = groups.difference(new)
    at_once = max(1, min(COUNTED_AT_ONCE, MATCHED_AT_ONCE // (snapshot.label_sets + 1)))
    for end in range(at_once, len(new), at_once):
        checkpoint()
        replica.ensure_counted((*known, *new[:end]))
    checkpoint()
    return replica.ensure_counted(groups)


def _note_use(groups: Iterable[Group], snapshot: Snapshot) -> None:
    """Note that groups were used at a snapshot: those unused for longest are dropped first."""
    for group in groups:
        group.use.last_used = snapshot.sequence
