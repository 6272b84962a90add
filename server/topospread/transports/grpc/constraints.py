"""A constraint as it is understood, as the API's SpreadConstraint."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from topospread.kube.objects import HONOR, IGNORE
from topospread.kube.selectors import Selector, selector_text
from topospread_proto.kubernetes.v1 import kubernetes_pb2
from topospread_proto.v1 import common_pb2

if TYPE_CHECKING:
    from topospread.spread.constraints import Constraint

_ID_BYTES: Final = 8


def constraint_message(constraint: Constraint) -> common_pb2.SpreadConstraint:
    """A constraint, with the id that it has in every answer."""
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


def selector_message(selector: Selector) -> kubernetes_pb2.LabelSelector | None:
    """A selector as Kubernetes writes it; None for the one that matches nothing."""
    if selector.nothing:
        return None
    return kubernetes_pb2.LabelSelector(
        match_expressions=[
            kubernetes_pb2.LabelSelectorRequirement(
                key=each.key, operator=each.operator, values=each.values
            )
            for each in selector.requirements
        ]
    )
