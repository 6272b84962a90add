"""Snapshots by name instead of by slot, and their comparison with plain counting."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from tests.index.changes import (
    CLAIMS,
    DISKS,
    ELIGIBILITIES,
    GROUPS,
    KEYS,
    LABELS,
    NAMESPACES,
    PORTS,
    PRIORITIES,
    RESOURCES,
    TERMS,
    TRAITS,
)
from topospread.kube.demands import ALL_ADDRESSES, AWS_EBS, GCE_PD, ISCSI, RBD, Disk, HostPort
from topospread.spread.cells import KEPT
from topospread.spread.classes import first_members

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from tests.index.counting import Cluster
    from topospread.index.builder import Builder
    from topospread.index.snapshot import Snapshot
    from topospread.spread.cells import Partition
    from topospread.spread.topology import Eligibility, GroupKey, Traits


def assert_counts(snapshot: Snapshot, cluster: Cluster) -> None:
    """Check that the snapshot agrees with the cluster, for the groups that it keeps."""
    assert_nodes(snapshot, cluster)
    assert_workloads(snapshot, cluster)
    for eligibility in ELIGIBILITIES:
        mask = snapshot.mask(eligibility)
        assert names_at(snapshot, np.flatnonzero(mask)) == cluster.eligible(eligibility)
        for key in KEYS:
            assert nodes_by_domain(snapshot, eligibility, key) == cluster.nodes_by_domain(
                eligibility, key
            )
    for traits in TRAITS:
        assert_partition(snapshot, cluster, traits)
    assert_usage(snapshot, cluster)
    assert_holdings(snapshot, cluster)
    assert dict(snapshot.nominated) == {
        f"{namespace}/{name}": row.nominated
        for (namespace, name), row in cluster.pods.items()
        if row.nominated is not None
    }
    assert_pod_classes(snapshot, cluster)
    for group in snapshot.groups:
        assert_group(snapshot, cluster, group)


def assert_pod_classes(snapshot: Snapshot, cluster: Cluster) -> None:
    """Each class has as many pods as the cluster has of them, and there are no others."""
    expected = {
        pod_class: (sum(bool(node) for _, node in pods), sum(not node for _, node in pods))
        for pod_class, pods in cluster.members().items()
    }
    assert {
        (pod_class.namespace, pod_class.template): tuple(counts)
        for classes in snapshot.pod_classes.values()
        for pod_class, counts in classes.items()
    } == expected
    labels = {(n, row.template): row.labels for (n, _), row in cluster.pods.items()}
    for namespace, classes in snapshot.pod_classes.items():
        assert len(classes) == len(list(classes)) > 0
        for pod_class in classes:
            assert pod_class.namespace == namespace
            assert pod_class.labels == labels[namespace, pod_class.template]


def assert_members(builder: Builder, cluster: Cluster) -> None:
    """The pods of all classes and of each one are those of the cluster."""
    kept = [each for classes in builder.snapshot.pod_classes.values() for each in classes]
    for asked in (kept, *([each] for each in kept)):
        found: dict[tuple[str, bytes], list[tuple[str, str]]] = {}
        for pod_class, name, node in list(builder.members().of(asked)):
            found.setdefault((pod_class.namespace, pod_class.template), []).append((name, node))
        expected = cluster.members()
        assert {key: sorted(pods) for key, pods in found.items()} == {
            (each.namespace, each.template): expected[each.namespace, each.template]
            for each in asked
        }


def assert_usage(snapshot: Snapshot, cluster: Cluster) -> None:
    """What is taken on each node."""
    for resource in RESOURCES:
        found = snapshot.usage.taken(resource, snapshot.nodes.capacity)
        assert found.size == snapshot.nodes.capacity
        expected = cluster.taken(resource)
        assert {name: int(found[snapshot.slot(name)]) for name in expected} == {
            # Sums are int64, as upstream's.
            name: (amount + 2**63) % 2**64 - 2**63
            for name, amount in expected.items()
        }


def share_port(one: HostPort, other: HostPort) -> bool:
    """Whether no node has both, as kube-scheduler's ``HostPortInfo`` compares them."""
    if (one.port, one.protocol) != (other.port, other.protocol):
        return False
    return one.ip == other.ip or ALL_ADDRESSES in (one.ip, other.ip)


def share_disk(one: Disk, other: Disk) -> bool:
    """Whether no node has both, as VolumeRestrictions' ``isVolumeConflict`` compares them."""
    if (one.plugin, one.handle) != (other.plugin, other.handle):
        return False
    if one.plugin == AWS_EBS:
        return True
    if one.plugin not in (GCE_PD, ISCSI, RBD) or (one.read_only and other.read_only):
        return False
    return one.plugin != RBD or not set(one.monitors).isdisjoint(other.monitors)


def assert_holdings(snapshot: Snapshot, cluster: Cluster) -> None:
    """What is held on each node, and by how many, asked in each way."""
    holding, holdings = cluster.holding(), snapshot.holdings

    def nodes(slots: Mapping[int, int]) -> dict[str, int]:
        assert all(slots.values())
        alive = {slot for slot in slots if slot < snapshot.nodes.capacity and snapshot.alive[slot]}
        return {snapshot.nodes.names[slot]: slots[slot] for slot in alive}

    for port in PORTS:
        conflicting = [node for node, held in holding for p in held.ports if share_port(p, port)]
        assert nodes(holdings.slots_of_port(port)) == Counter(conflicting)
    for disk in DISKS:
        conflicting = [node for node, held in holding for d in held.disks if share_disk(d, disk)]
        assert nodes(dict.fromkeys(holdings.slots_in_conflict([disk]), 1)).keys() == {*conflicting}
    conflicting = [n for n, held in holding for p in held.ports for q in PORTS if share_port(p, q)]
    conflicting += [n for n, held in holding for d in held.disks for e in DISKS if share_disk(d, e)]
    slots = holdings.slots_in_conflict((*PORTS, *DISKS))
    assert nodes(dict.fromkeys(slots, 1)).keys() == {*conflicting}
    for claim in CLAIMS:
        having = Counter(node for node, held in holding if claim in held.claims)
        assert nodes(holdings.slots_of_claim(claim)) == having
    for namespace, labels in product(NAMESPACES, map(dict, LABELS)):
        about = list(holdings.terms_about(namespace, labels))
        assert len({term for term, _ in about}) == len(about)
        found = {term: at for term, slots in about if (at := nodes(slots))}
        expected = {
            term: at
            for term in TERMS
            if namespace in term.namespaces or term.namespace_selector is not None
            if term.selector.matches(labels)
            if (at := Counter(node for node, held in holding if term in held.terms))
        }
        assert found == expected
    for name in cluster.nodes:
        here = [held for node, held in holding if node == name]
        slot = snapshot.slot(name)
        on = [*holdings.on(slot)]
        claims = {each for each in on if isinstance(each, str)}
        assert claims == {c for held in here for c in held.claims}
        disks = {each for each in on if isinstance(each, Disk)}
        assert disks == {d for held in here for d in held.disks}
    for priority in (*PRIORITIES, 5):
        lower = snapshot.lower_priority(priority)
        assert {name: int(lower[snapshot.slot(name)]) for name in cluster.nodes} == {
            name: sum(each < priority for each in priorities)
            for name, priorities in cluster.priorities().items()
        }


def assert_nodes(snapshot: Snapshot, cluster: Cluster) -> None:
    """The node table holds the cluster's nodes, in the order of their names as bytes."""
    nodes = snapshot.nodes
    in_order = sorted(cluster.nodes, key=lambda name: name.encode())
    assert snapshot.pods == len(cluster.pods)
    assert len(snapshot.reservations) == len(cluster.reservations)
    for (namespace, name), held in cluster.reservations.items():
        assert snapshot.reservations.of(namespace, name, held.uid) is held
    assert dict(snapshot.reservations) == {
        f"{namespace}/{name}": held for (namespace, name), held in cluster.reservations.items()
    }
    assert snapshot.node_count == nodes.count == len(in_order)
    assert list(nodes.sorted_names) == in_order
    assert [nodes.names[slot] for slot in nodes.order.tolist()] == in_order
    assert [nodes.node(nodes.slot(name)) for name in in_order] == [
        cluster.nodes[name] for name in in_order
    ]
    assert names_at(snapshot, np.flatnonzero(snapshot.alive)) == set(in_order)
    for key in KEYS:
        column = snapshot.domains(key)
        ids = {name: int(column.ids[nodes.slot(name)]) for name in in_order}
        found = {name: column.values[number] for name, number in ids.items() if number >= 0}
        assert found == cluster.domains(key)
        assert (column.ids[~snapshot.alive] == -1).all()
        assert column.unique == (len(set(found.values())) == len(found))


def assert_workloads(snapshot: Snapshot, cluster: Cluster) -> None:
    """Each namespace has its workloads, and its services in the order of their names."""
    assert snapshot.workload_count == len(cluster.workloads)
    for namespace in NAMESPACES:
        there = {key: w for key, w in cluster.workloads.items() if key[1] == namespace}
        known = snapshot.namespace(namespace)
        for kind, _, name in cluster.workloads:
            assert known.lookup(kind, name) is there.get((kind, namespace, name))
        services = [w for (kind, _, _), w in sorted(there.items()) if kind == "Service"]
        assert list(known.services) == services


def assert_group(snapshot: Snapshot, cluster: Cluster, group: GroupKey) -> None:
    """Each count of a group is the cluster's: by node, by domain in every view, and by class."""
    on_slots = snapshot.node_counts(group)
    assert on_slots.size == snapshot.nodes.capacity
    by_node = cluster.pods_by_node(group)
    assert {name: int(on_slots[snapshot.slot(name)]) for name in by_node} == by_node
    for eligibility in ELIGIBILITIES:
        for key in KEYS:
            found = snapshot.domain_counts(group, eligibility, key)
            values = snapshot.domains(key).values
            present = snapshot.membership(eligibility, key).present
            expected = cluster.pods_by_domain(group, eligibility, key)
            assert {values[d]: int(found[d]) for d in np.flatnonzero(present).tolist()} == expected
            assert not found[~present].any(), "pods in a domain without an eligible node"
    for traits in TRAITS:
        assert_cells(snapshot, by_node, group, snapshot.partition(traits))


def assert_partition(snapshot: Snapshot, cluster: Cluster, traits: Traits) -> None:
    """Nodes are in one class if and only if their traits are the same."""
    partition = snapshot.partition(traits)
    classes: dict[object, list[str]] = {}
    inside = [cluster.eligible(eligibility) for eligibility in traits.eligibilities]
    for name in sorted(cluster.nodes, key=lambda name: name.encode()):
        labels = cluster.nodes[name].labels
        own = (
            tuple(labels.get(key) for key in traits.keys),
            tuple(key in labels for key in traits.labels),
            tuple(name in eligible for eligible in inside),
        )
        classes.setdefault(own, []).append(name)
    names = snapshot.nodes.names
    found = {
        (
            tuple(
                snapshot.domains(key).values[int(ids[number])] if ids[number] >= 0 else None
                for key, ids in zip(traits.keys, partition.domains, strict=True)
            ),
            tuple(bool(labelled[number]) for labelled in partition.labelled),
            tuple(bool(eligible[number]) for eligible in partition.eligible),
        ): [names[slot] for slot in members]
        for number, members in enumerate(partition.members)
    }
    assert found == classes
    assert partition.nodes.tolist() == [len(members) for members in partition.members]
    for number, members in enumerate(partition.members):
        assert (partition.ids[members] == number).all()
    assert int((partition.ids >= 0).sum()) == len(cluster.nodes)
    assert partition.rank[snapshot.nodes.order].tolist() == list(range(len(cluster.nodes)))


def assert_cells(
    snapshot: Snapshot, by_node: dict[str, int], group: GroupKey, partition: Partition
) -> None:
    """Which nodes of each class hold how many pods."""
    cells = snapshot.cells(group, partition)
    for number, members in enumerate(partition.members):
        slots = members.tolist()
        pods = [by_node[snapshot.nodes.names[slot]] for slot in slots]
        assert cells.held[number] == sorted(set(pods))
        assert cells.nodes[number] == len(slots)
        for own, within in zip(cells.held[number], cells.within[number], strict=True):
            assert within == sum(each <= own for each in pods)
            here = [
                (int(partition.rank[slot]), slot)
                for slot, each in zip(slots, pods, strict=True)
                if each == own
            ]
            for count in (1, KEPT, len(slots)):
                assert first_members(cells, number, own, count) == here[:count]
        assert max(pods) < cells.width


def nodes_by_domain(snapshot: Snapshot, eligibility: Eligibility, key: str) -> dict[str, int]:
    """Eligible nodes in each domain that has any."""
    membership = snapshot.membership(eligibility, key)
    assert membership.size == int(membership.present.sum())
    assert (membership.present == (membership.nodes > 0)).all()
    values = snapshot.domains(key).values
    return {
        values[d]: int(membership.nodes[d]) for d in np.flatnonzero(membership.present).tolist()
    }


def names_at(snapshot: Snapshot, slots: NDArray[np.intp]) -> set[str]:
    """The names of the nodes in slots."""
    return {snapshot.nodes.names[slot] for slot in slots}


def read(snapshot: Snapshot, groups: Iterable[GroupKey] = GROUPS) -> None:
    """Have everything worked out that the snapshot works out when it is first asked."""
    for group in set(groups) & set(snapshot.groups):
        snapshot.node_counts(group)
        for eligibility in ELIGIBILITIES:
            for key in KEYS:
                snapshot.domain_counts(group, eligibility, key)
        for traits in TRAITS:
            cells = snapshot.cells(group, snapshot.partition(traits))
            for number, held in enumerate(cells.held):
                for own in held:
                    first_members(cells, number, own, 1)
