"""Room for a workload's replicas, by the domains of what spreads or parts them; lint asks for it.

Each domain is said with the replicas that it has and those for which it has room now. What stands
in their way for good, nodes that the pod cannot use and other workloads' pods with its host ports
or against its anti-affinity, makes a domain unusable. Volumes are looked at as `Fit.NODE` does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from topospread.checkpoints import checkpoint
from topospread.kube.objects import HOSTNAME_LABEL
from topospread.service.fit.headroom import PLENTY, headroom_of
from topospread.service.fit.inter_pod_affinity import EVERYWHERE, counted_groups, own_terms
from topospread.service.fit.profile import suited
from topospread.service.fit.question import Fit
from topospread.spread.topology import GroupKey
from topospread_proto.v1.explanation_pb2 import DomainCapacity, ReplicaCapacity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.index.snapshot import Snapshot
    from topospread.kube.selectors import Selector
    from topospread.service.decisions.engine import ResolvedCycle
    from topospread.service.explaining.context import EvaluationContext
    from topospread.spread.constraints import Constraint
    from topospread.spread.topology import Bools, Ints


def capacities_at(
    resolved: ResolvedCycle, context: EvaluationContext, replicas: Selector
) -> list[ReplicaCapacity]:
    """The capacities, at the cycle's state, or a newer one where the replicas are counted first."""
    group = GroupKey(context.pod.namespace, replicas, terminating=True)
    snapshot = context.snapshot
    if snapshot.missing([group]):
        shape = (*context.hard, *context.soft)
        groups = {each.group for each in shape if not each.counts_nothing}
        groups.update(counted_groups(context.demand, snapshot.objects))
        snapshot = resolved.replica.ensure_counted({*groups, group}).snapshot
    return capacities_of(replace(context, snapshot=snapshot), group)


def capacities_of(context: EvaluationContext, replicas: GroupKey) -> list[ReplicaCapacity]:
    """The capacities of a pod's workload: of its own hard constraints, then of what parts its pods.

    Args:
        context: the pod, at a snapshot that counts its replicas, too.
        replicas: the pods of the workload, those that terminate among them.
    """
    snapshot, demand = context.snapshot, context.demand
    running = snapshot.node_counts(replicas).astype(np.int64)
    usable = suited(context.asked, Fit.NODE).nodes & snapshot.alive
    for port in demand.ports:
        checkpoint()
        for slot, pods in snapshot.holdings.slots_of_port(port).items():
            if slot < running.size and pods > running[slot]:
                usable[slot] = False
    apart = [
        (key, group)
        for key, group in own_terms(demand, snapshot.objects).apart
        if group.covers(context.pod.namespace) and group.selector.matches(context.pod.labels)
    ]
    nodes = _Nodes(snapshot, running, usable, np.where(usable, headroom_of(snapshot, demand), 0))
    if any(key == HOSTNAME_LABEL for key, _ in apart):
        nodes.free = np.where(running > 0, 0, np.minimum(nodes.free, 1))
    found: list[ReplicaCapacity] = []
    if not context.constraints.defaulted:
        for constraint, (index, _) in zip(context.hard, context.specs(hard=True), strict=False):
            checkpoint()
            found.append(nodes.of_constraint(constraint, index))
    found += [nodes.of_term(key, group) for key, group in dict.fromkeys(apart)]
    if demand.ports:
        found.append(nodes.alone())
    return found


class _Nodes:
    """The nodes of a snapshot.

    Attributes:
        running: [slots] replicas.
        usable: [slots] whether one may come there.
        free: [slots] more of them for which there is room.
    """

    def __init__(self, snapshot: Snapshot, running: Ints, usable: Bools, free: Ints) -> None:
        self.snapshot, self.running, self.usable, self.free = snapshot, running, usable, free

    def of_constraint(self, constraint: Constraint, index: int) -> ReplicaCapacity:
        key = constraint.topology_key
        counted = self.snapshot.membership(constraint.eligibility, key).present
        running, free, usable = self._by_domain(key)
        return ReplicaCapacity(
            constraint_index=index,
            topology_key=key,
            domains=_alike(running[counted], free[counted], usable[counted]),
        )

    def of_term(self, key: str, group: GroupKey) -> ReplicaCapacity:
        """One domain takes one of them; another workload's pod takes it as well."""
        running, free, usable = self._by_domain(key)
        held = self.snapshot.domain_counts(group, EVERYWHERE, key)
        usable &= held <= running
        there = self.snapshot.membership(EVERYWHERE, key).present
        one = np.minimum(running, 1)
        free = np.where(one > 0, 0, np.minimum(free, 1))
        keyless = self.usable & (self.snapshot.domains(key).ids < 0)
        return ReplicaCapacity(
            topology_key=key,
            domains=_alike(one[there], free[there], usable[there]),
            keyless_usable_node_count=int(np.count_nonzero(keyless)),
        )

    def alone(self) -> ReplicaCapacity:
        """Each node for itself."""
        alive = self.snapshot.alive
        one = np.minimum(self.running, 1)
        return ReplicaCapacity(domains=_alike(one[alive], self.free[alive], self.usable[alive]))

    def _by_domain(self, key: str) -> tuple[Ints, Ints, Bools]:
        domains = self.snapshot.domains(key)
        size, inside = len(domains.values), domains.ids >= 0
        ids = domains.ids[inside]
        running, free = (np.zeros(size, dtype=np.int64) for _ in range(2))
        usable = np.zeros(size, dtype=np.bool_)
        np.add.at(running, ids, self.running[inside])
        np.add.at(free, ids, self.free[inside])
        usable[ids[self.usable[inside]]] = True
        return running, free, usable


def _alike(running: Ints, free: Ints, usable: Bools) -> Iterator[DomainCapacity]:
    rows = np.stack([running, np.minimum(free, PLENTY), usable.astype(np.int64)], axis=1)
    kinds, numbers = np.unique(rows, axis=0, return_counts=True)
    for (replicas, places, is_usable), number in zip(kinds.tolist(), numbers.tolist(), strict=True):
        yield DomainCapacity(
            domain_count=number,
            replica_count=replicas,
            free_place_count=places,
            usable=bool(is_usable),
        )
