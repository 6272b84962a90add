"""Plans: the part of a judgement that depends on constraints and nodes alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.checkpoints import checkpoint
from topospread.spread.cells import Cells, Partition
from topospread.spread.topology import GroupKey, Traits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.spread.constraints import Constraint, PodConstraints
    from topospread.spread.topology import Topology

MAX_CLASSES: Final = 64
"""Past it, arrays over all nodes are quicker."""


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """A constraint applied to node classes; lists have one entry per class.

    Attributes:
        per_node: whether it looks at a node's own pods (hostnames) instead of a domain's.
        domain: the domain; −1 without the label. Empty when per node.
        labelled: whether the nodes have the label.
        eligible: whether the nodes are counted; looked at for hard constraints per node.
        present: the domains with an eligible node. Empty when per node.
        size: how many domains have an eligible node.
    """

    constraint: Constraint
    per_node: bool
    domain: Sequence[int]
    labelled: Sequence[bool]
    eligible: Sequence[bool]
    present: Sequence[int]
    size: int
    counts_nothing: bool


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The part of a judgement that depends on constraints and nodes alone; for one node table.

    Attributes:
        group: whose pods are counted per node; None when no constraint does.
        cells: the classes when nothing is counted per node.
        ignored: [classes] whether scoring passes the nodes over.
    """

    partition: Partition
    hard: tuple[Term, ...]
    soft: tuple[Term, ...]
    group: GroupKey | None
    cells: Cells
    ignored: Sequence[bool]

    @property
    def nbytes(self) -> int:
        """Bytes, about, without the partition and the constraints."""
        terms = (*self.hard, *self.soft)
        seen = (len(t.domain) + len(t.labelled) + len(t.eligible) + len(t.present) for t in terms)
        return 500 + 8 * len(self.ignored) + 450 * len(terms) + 12 * sum(seen)


def plan(constraints: PodConstraints, topology: Topology) -> Plan | None:
    """Prepare to judge classes; None when nodes must be judged one by one."""
    hard, soft = constraints.hard.constraints, constraints.soft.constraints
    own_hard = [c for c in hard if topology.domains(c.topology_key).unique]
    own_soft = [c for c in soft if c.is_hostname]
    shared_soft = [c for c in soft if not c.is_hostname]
    groups = {c.group for c in (*own_hard, *own_soft) if not c.counts_nothing}
    # Under the System defaults nodes without a label share the domain "" with those that have it.
    blank = any("" in topology.domains(c.topology_key).number for c in shared_soft)
    # A raw score below 0 is out of order: upstream takes −1 for "ignored".
    negative = any(c.max_skew < 1 for c in soft)
    if len(groups) > 1 or negative or (blank and not constraints.require_all_keys):
        return None
    shared = [c for c in hard if c not in own_hard] + shared_soft
    traits = Traits(
        keys=tuple(dict.fromkeys(c.topology_key for c in shared)),
        labels=tuple(dict.fromkeys(c.topology_key for c in (*own_hard, *own_soft))),
        eligibilities=tuple(dict.fromkeys(c.eligibility for c in own_hard)),
    )
    partition = topology.partition(traits)
    if partition.size > MAX_CLASSES:
        return None
    soft_terms = tuple(_term(c, c.is_hostname, partition, traits, topology) for c in soft)
    require = constraints.require_all_keys
    return Plan(
        partition,
        tuple(_term(c, c in own_hard, partition, traits, topology) for c in hard),
        soft_terms,
        next(iter(groups), None),
        Cells.uncounted(partition),
        [require and not all(t.labelled[c] for t in soft_terms) for c in range(partition.size)],
    )


def _term(
    constraint: Constraint,
    per_node: bool,
    partition: Partition,
    traits: Traits,
    topology: Topology,
) -> Term:
    checkpoint()
    key, eligibility = constraint.topology_key, constraint.eligibility
    nothing = constraint.counts_nothing
    membership = topology.membership(eligibility, key)
    if not per_node:
        domain = partition.domains[traits.keys.index(key)].tolist()
        labelled = [d >= 0 for d in domain]
        present = np.flatnonzero(membership.present).tolist()
        size = membership.size
        return Term(constraint, False, domain, labelled, labelled, present, size, nothing)
    labelled = partition.labelled[traits.labels.index(key)].tolist()
    eligible = labelled
    if eligibility in traits.eligibilities:
        eligible = partition.eligible[traits.eligibilities.index(eligibility)].tolist()
    return Term(constraint, True, (), labelled, eligible, (), membership.size, nothing)
