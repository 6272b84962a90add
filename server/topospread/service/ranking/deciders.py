"""Whose pods are ranked, and what its controller makes of an order."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from topospread.codec.owners import controller_reference
from topospread.codec.parsing import parse_stored
from topospread.errors import FieldViolation, InvalidRequest
from topospread.generated.internal.v1 import stored_pb2
from topospread.kube.workloads import CONTROLLED, JOB, REVISIONS, STATEFUL_SET, controllers_of
from topospread.wording import counted
from topospread_proto.v1 import deletion_order_pb2 as detail

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from topospread.index.pod_classes import PodClass
    from topospread.kube.objects import OwnerReference
    from topospread.kube.workloads import KnownControllers

    Controllers = Mapping[str, KnownControllers]

_FOLLOW_COST: Final = frozenset(
    {"Deployment", "DeploymentConfig", "Rollout", "CloneSet", *REVISIONS}
)
"""Kinds whose pods go by their deletion costs."""

_NOT_SCALED: Final[Mapping[str, str]] = {
    "DaemonSet": "has a pod on each of its nodes: it is not scaled in, and its pods have no order",
    "Node": "has static pods, which go with their files on it: they have no order",
}

_SHOWN: Final = 5

COST: Final = "controller.kubernetes.io/pod-deletion-cost"


class Decider(NamedTuple):
    """A controller that makes a workload's pods fewer.

    Attributes:
        group: its API group; empty where that is not known.
    """

    kind: str
    namespace: str
    name: str
    group: str = ""

    @property
    def shown(self) -> str:
        """For people."""
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def is_job(self) -> bool:
        """Whether it is a Job of Kubernetes' own."""
        return self.kind == JOB and self.group in ("", CONTROLLED[JOB])

    def same(self, kind: str, name: str) -> bool:
        """Whether it has this kind and name."""
        return (self.kind, self.name) == (kind, name)


def deciders_of(
    namespace: str,
    owners: Iterable[stored_pb2.StoredOwner],
    labels: Mapping[str, str],
    known: Controllers,
) -> tuple[Decider, ...]:
    """The controllers of a pod, the one that decides about its end last; none without.

    Args:
        namespace: the pod's.
        owners: its owner references.
        labels: its own.
        known: by namespace, of what controls pods; see kube.workloads.controllers_of.
    """
    owner = controller_reference(owners)
    if owner is None:
        return ()
    found = controllers_of(owner, labels, known.get(namespace, {}))
    chain = found[:2] if owner.kind in REVISIONS else found[:1]
    return tuple(_decider(namespace, each) for each in chain)


def deciders_of_class(pod_class: PodClass, known: Controllers) -> tuple[Decider, ...]:
    """The controllers of the pods of a class; see :func:`deciders_of`."""
    owners = parse_stored(stored_pb2.ListedPod, pod_class.template).metadata.owner_references
    return deciders_of(pod_class.namespace, owners, dict(pod_class.labels), known)


def _decider(namespace: str, owner: OwnerReference) -> Decider:
    group, slash, _ = owner.api_version.rpartition("/")
    return Decider(owner.kind, namespace, owner.name, group if slash else "")


def only_decider(found: Iterable[Decider | None]) -> Decider | None:
    """The one controller of pods that some may lack; None where none has any.

    Raises:
        InvalidRequest: there are several, or one whose pods have no order.
    """
    # An owner without a group in one reference is the same.
    pods = Counter((each.kind, each.namespace, each.name) for each in found if each is not None)
    if len(pods) > 1:
        shown = [
            f"{kind} {namespace}/{name} ({counted(count, 'pod')})"
            for (kind, namespace, name), count in sorted(pods.items())
        ]
        listed = ", ".join(shown[:_SHOWN])
        if shown[_SHOWN:]:
            listed += f" and {len(shown) - _SHOWN} more"
        raise _refused(
            f"selects pods of several workloads, {listed}: each is scaled in by itself; select the"
            " pods of one, or name it (workload; with -f its manifest)"
        )
    decider = next((each for each in found if each is not None), None)
    if decider is not None and decider.kind in _NOT_SCALED:
        raise _refused(f"selects pods of {decider.shown}, which {_NOT_SCALED[decider.kind]}")
    return decider


def _refused(text: str) -> InvalidRequest:
    return InvalidRequest.of([FieldViolation("labelSelector", text)])


def decider_message(decider: Decider | None, *, indexed: bool) -> detail.DeletionDecider:
    """Who decides, as answers have it."""
    if decider is None:
        text = "no controller: these pods go only when somebody deletes them, in whatever order"
        return detail.DeletionDecider(text=text)
    made = detail.DeletionDecider(
        namespace=decider.namespace,
        follows_deletion_cost=decider.kind in _FOLLOW_COST,
        text=f"{decider.shown}: {_how(decider, indexed=indexed)}",
    )
    made.workload.kind, made.workload.name = decider.kind, decider.name
    return made


def _how(decider: Decider, *, indexed: bool) -> str:
    if decider.kind == STATEFUL_SET:
        text = (
            "it takes the highest ordinals first, whatever is asked for here; annotations"
            f" ({COST}) change nothing"
        )
        if decider.group == "apps.kruise.io":
            text += (
                "; an ordinal in its spec.reserveOrdinals goes before these, and one above its"
                " highest takes the place"
            )
        return text
    if decider.is_job:
        text = (
            "when its parallelism is lowered, its controller takes pods in this order, whatever is"
            f" asked for here; annotations ({COST}) change nothing"
        )
        if indexed:
            text += "; when its completions are lowered with it, pods of the indexes above go"
        return text
    if decider.kind in _FOLLOW_COST:
        text = f"it takes pods in this order if their {COST} rises in it"
        return text if decider.kind == "CloneSet" else f"{text}, else as strategy replica-set"
    return "in which order it takes pods is not known here: this is how they should go"


def revisions_note(decider: Decider | None, revisions: Counter[str]) -> Iterable[str]:
    """That pods are of several ReplicaSets, each of which takes its own."""
    if decider is None or len(revisions) < 2:
        return
    named = sorted(revisions.items())[:_SHOWN]
    shown = ", ".join(f"{name} ({counted(count, 'pod')})" for name, count in named)
    yield (
        f"the pods are of {len(revisions)} revisions, {shown}: each takes its own in this order,"
        f" and how many go of each is for {decider.shown} to say (in a rollout, the older ones);"
        " skews are of all of them together"
    )


def left_out_notes(kept: Decider | None, left_out: Sequence[Decider | None]) -> Iterable[str]:
    """Notes on pods that a selector matches and that are not ranked."""
    bare = sum(each is None for each in left_out)
    others = Counter(each.shown for each in left_out if each is not None)
    if bare:
        have = "has no controller and is" if bare == 1 else "have no controller and are"
        yield f"{counted(bare, 'pod')} of the selected {have} left out"
    if others and kept is not None:
        named = sorted(others.items())[:_SHOWN]
        shown = ", ".join(f"{name} ({counted(count, 'pod')})" for name, count in named)
        yield f"the selector matches pods of other workloads, which are left out: {shown}"
