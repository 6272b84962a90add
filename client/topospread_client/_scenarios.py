"""Scenarios of Simulate: the hypothetical changes, and the rules of placement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from topospread_client import _arguments as arguments
from topospread_client import _requests as requests
from topospread_client._enums import ConstraintValidation, DrainMode, Fit
from topospread_client._errors import invalid
from topospread_client._manifests import object_from_manifest
from topospread_client._references import PodReference, pod_reference
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as kube
from topospread_proto.v1 import scenario_pb2 as pb

if TYPE_CHECKING:
    from topospread_client._requests import PodSource, Settings, WhatIf

NodeObject: TypeAlias = kube.Node | Mapping[str, Any]
"""A node as a message or as a manifest."""


@dataclass(frozen=True, slots=True)
class PodsToPlace:
    """Pods of one template to place, or one pod of the state.

    Attributes:
        pod: itself, a workload that makes pods (a manifest), or its name in the state.
        replicas: how many, named NAME-0, NAME-1 …; None: one, under the pod's own name.
    """

    pod: PodSource
    replicas: int | None = None

    def message(self, path: str, validation: ConstraintValidation | None = None) -> pb.PodsToPlace:
        """Message of the request, with the manifest validated as the scenario says.

        Raises:
            InvalidRequest: replicas that cannot be.
            ManifestError: a manifest that is no pod.
        """
        return arguments.part(
            path,
            pb.PodsToPlace,
            pod=requests.pod_source(self.pod, f"{path}.pod", validation),
            replicas=self.replicas,
        )


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that join the cluster.

    Attributes:
        template: labels, taints and status.allocatable of each.
        node_count: how many. When the fewest are looked for, the most that may join, where None is
            as many as the server allows; otherwise it is required.
        name: of the group in the response; None takes the template's name.
        variants: labels that the nodes take in turn, one mapping a zone.
    """

    template: NodeObject
    node_count: int | None = None
    name: str | None = None
    variants: Sequence[Mapping[str, str]] = ()

    def message(self, path: str, validation: ConstraintValidation | None = None) -> pb.NodeGroup:
        """Message of the request, with the manifest validated as the scenario says.

        Raises:
            InvalidRequest: a count that cannot be, or a manifest of another kind.
            ManifestError: a manifest that cannot be read.
        """
        return arguments.part(
            path,
            pb.NodeGroup,
            name=self.name or "",
            template=node_message(self.template, f"{path}.template", validation),
            node_count=self.node_count,
            variants=[
                arguments.part(where, pb.NodeLabels, labels=labels)
                for where, labels in arguments.with_paths(self.variants, f"{path}.variants")
            ],
        )


@dataclass(frozen=True, slots=True)
class DrainedNode:
    """Node that is drained; without a mode it is gone."""

    node: str
    mode: DrainMode | None = None

    def message(self, path: str) -> pb.DrainedNode:
        """Message of the request."""
        mode = arguments.enum_value(pb.DrainMode, DrainMode, self.mode, f"{path}.mode")
        return arguments.part(path, pb.DrainedNode, node=self.node, mode=mode)


@dataclass(frozen=True, slots=True)
class ConstraintMatch:
    """Selection of the constraints that are changed.

    Attributes:
        topology_key: those with this key.
        when_unsatisfiable: of these only DoNotSchedule or ScheduleAnyway; None: both.
    """

    topology_key: str
    when_unsatisfiable: str | None = None


@dataclass(frozen=True, slots=True)
class ConstraintValues:
    """New values of constraints; None leaves a value as it is."""

    max_skew: int | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    when_unsatisfiable: str | None = None


@dataclass(frozen=True, slots=True)
class ConstraintChange:
    """Change of the pods' constraints.

    Attributes:
        match: which; a string is a topology key.
        set: other values.
        clear_min_domains: takes minDomains away.
    """

    match: ConstraintMatch | str
    set: ConstraintValues | None = None
    clear_min_domains: bool = False

    def message(self, path: str) -> pb.ConstraintChange:
        """Message of the request."""
        match = ConstraintMatch(self.match) if isinstance(self.match, str) else self.match
        match = arguments.checked(ConstraintMatch, match, f"{path}.match")
        values = arguments.checked(ConstraintValues, self.set or ConstraintValues(), f"{path}.set")
        return arguments.part(
            path,
            pb.ConstraintChange,
            match=arguments.part(
                f"{path}.match",
                pb.ConstraintMatch,
                topology_key=match.topology_key,
                when_unsatisfiable=match.when_unsatisfiable or "",
            ),
            set=arguments.part(
                f"{path}.set",
                pb.ConstraintValues,
                max_skew=values.max_skew,
                min_domains=values.min_domains,
                node_affinity_policy=values.node_affinity_policy,
                node_taints_policy=values.node_taints_policy,
                when_unsatisfiable=values.when_unsatisfiable,
            ),
            clear_min_domains=self.clear_min_domains,
        )


@dataclass(frozen=True, slots=True)
class SupposedChanges:
    """Hypothetical changes of the live state, which come before any pod is placed.

    Attributes:
        add_node_groups: nodes that join.
        drain_nodes: nodes that are drained; a string is a node that is gone.
        add_pods: pods that run, each with its node.
        delete_pods: pods of the state that are gone.
        constraint_changes: other values for the pods' constraints.
    """

    add_node_groups: Sequence[NodeGroup] = ()
    drain_nodes: Sequence[DrainedNode | str] = ()
    add_pods: WhatIf = ()
    delete_pods: Sequence[PodReference | str] = ()
    constraint_changes: Sequence[ConstraintChange] = ()

    def message(
        self, path: str, validation: ConstraintValidation | None = None
    ) -> pb.SupposedChanges:
        """As the request carries it; raises as its parts do."""
        return pb.SupposedChanges(
            add_node_groups=[
                arguments.checked(NodeGroup, each, where).message(where, validation)
                for where, each in arguments.with_paths(
                    self.add_node_groups, f"{path}.addNodeGroups"
                )
            ],
            drain_nodes=[
                arguments.checked(
                    DrainedNode, DrainedNode(each) if isinstance(each, str) else each, where
                ).message(where)
                for where, each in arguments.with_paths(self.drain_nodes, f"{path}.drainNodes")
            ],
            add_pods=requests.pods_on_nodes(self.add_pods, f"{path}.addPods", validation),
            delete_pods=[
                pod_reference(each, where)
                for where, each in arguments.with_paths(self.delete_pods, f"{path}.deletePods")
            ],
            constraint_changes=[
                arguments.checked(ConstraintChange, each, where).message(where)
                for where, each in arguments.with_paths(
                    self.constraint_changes, f"{path}.constraintChanges"
                )
            ],
        )


@dataclass(frozen=True, slots=True)
class Scenario:
    """Hypothetical changes, and the rules by which pods are placed.

    Attributes:
        changes: of the live state.
        fit: filters beside spreading; None applies `Fit.NODE_AND_RESOURCES`.
        seed: orders equal nodes, as for place_pod.
        settings: None takes the profiles of the pods' schedulerNames.
        validation: of the pods' constraints, as changed; STRICT also refuses manifests with fields
            that Kubernetes does not have.
    """

    changes: SupposedChanges | None = None
    fit: Fit | None = None
    seed: str | None = None
    settings: Settings | None = None
    validation: ConstraintValidation | None = None

    def message(self, path: str) -> pb.Scenario:
        """As the request carries it; raises as its parts do."""
        where = f"{path}.changes"
        changes = None
        if self.changes is not None:
            checked = arguments.checked(SupposedChanges, self.changes, where)
            changes = checked.message(where, self.validation)
        return arguments.part(
            path,
            pb.Scenario,
            changes=changes,
            fit=requests.fit_message(self.fit, f"{path}.fit"),
            seed=self.seed or "",
            settings=requests.part_message(self.settings, requests.Settings, f"{path}.settings"),
            validation=requests.validation_message(self.validation, f"{path}.validation"),
        )


def node_message(
    node: NodeObject, path: str, validation: ConstraintValidation | None = None
) -> kube.Node:
    """Convert a node to a message.

    Raises:
        InvalidRequest: a manifest of another kind.
        ManifestError: a manifest that cannot be read.
    """
    if isinstance(node, kube.Node):
        return node
    converted = requests.checked_manifest(object_from_manifest, node, path, validation)
    if converted is None or not converted.HasField("node"):
        raise invalid(path, f"kind {node['kind']!r}: this must be a Node")
    return converted.node
