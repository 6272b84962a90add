"""Workloads of files as `topospread simulate` asks for them: what is missing of each, and notes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from topospread.cli.errors import BadInput
from topospread.cli.kinds import OWNERS, POD, ObjectName
from topospread.cli.options import MAX_NUMBER
from topospread.codec.manifest_parts import part_of
from topospread.codec.owners import controller_reference
from topospread.codec.rollouts import is_on_delete, is_paused, rollout_message, rollout_of
from topospread.kube.workloads import controllers_of
from topospread.wording import counted
from topospread_proto.v1 import scenario_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from topospread.cli.manifest_objects import PodRequest
    from topospread.cli.state_pods import StatePods
    from topospread.errors import FieldViolation
    from topospread.kube.rollouts import Rollout
    from topospread_proto.v1.planner_service_pb2 import SimulateResponse

_NAMED: Final = 3
"""Controllers that a warning names."""

_NEW_EACH_TIME: Final = frozenset({"CronJob"})
"""Kinds whose pods are more each time, whatever is there."""

_MAKERS: Final = frozenset({*OWNERS, "Rollout", "DeploymentConfig"}) - _NEW_EACH_TIME
"""Kinds whose number of pods says all: what they have made is no more."""


def each_once(requests: Sequence[PodRequest]) -> tuple[list[PodRequest], Counter[str]]:
    """The pods to place, each object once as it is given last, and the kinds of the others.

    As a file has what is named, too, or a StrimziPodSet the pods that a dump has beside it.
    """
    last: dict[object, PodRequest] = {}
    for number, each in enumerate(requests):
        path = each.template_path if each.several_templates else ""
        last[(_name(each), path) if each.subject.pod.name else number] = each
    return [*last.values()], _kinds(requests) - _kinds(last.values())


def without_made(requests: Sequence[PodRequest]) -> tuple[list[PodRequest], Counter[str]]:
    """The pods to place without those that others of them make, and the kinds of these.

    As a dump has a Deployment with its ReplicaSets and their pods.
    """
    names = {
        _name(each) for each in requests if each.subject.kind in _MAKERS and each.subject.pod.name
    }
    kept = [each for each in requests if names.isdisjoint(_controllers(each))]
    return kept, _kinds(requests) - _kinds(kept)


def _kinds(requests: Iterable[PodRequest]) -> Counter[str]:
    return Counter(each.subject.kind for each in requests)


def _name(request: PodRequest) -> ObjectName:
    pod = request.subject.pod
    return ObjectName(request.subject.kind, pod.namespace or "default", pod.name)


def _controllers(request: PodRequest) -> Iterator[ObjectName]:
    """What controls a pod or workload: of pods also by the hash in their labels."""
    own = _name(request)
    namespace = own.namespace
    if request.manifest is None or own.kind == POD:
        meta = request.source.object.metadata
        owner = controller_reference(meta.owner_references)
        chain = () if owner is None else controllers_of(owner, meta.labels, {})
        names = [ObjectName(each.kind, namespace, each.name) for each in chain]
        yield from names[names.index(own) + 1 :] if own in names else names
        return
    references = part_of(request.manifest.content, "metadata").get("ownerReferences")
    for each in references if isinstance(references, list) else ():
        if isinstance(each, dict) and each.get("controller") is True:
            yield ObjectName(str(each.get("kind")), namespace, str(each.get("name")))


def to_place(request: PodRequest, given: int | None, *, in_addition: bool) -> pb.PodsToPlace:
    """A pod or workload to place: of what is in the state already only what is missing."""
    placed = pb.PodsToPlace(pod=request.source, replicas=_replicas(request, given))
    kind, name = request.subject.kind, request.subject.pod.name
    is_named = request.next_replica is not None
    copies = request.replicas is None and given is not None and not is_named
    alone = request.several_templates or kind in _NEW_EACH_TIME
    if in_addition or copies or alone or not name or placed.pod.HasField("ref"):
        return placed
    placed.workload.kind, placed.workload.name = kind, name
    if given is None and not request.says_replicas and (is_named or kind not in (POD, "Job")):
        # Applied, it leaves the number as it is; and a DaemonSet has none.
        placed.ClearField("replicas")
    if request.completions is not None:
        placed.completions = request.completions
    rollout = _rollout(request)
    if rollout is not None:
        placed.rolling_update.CopyFrom(rollout_message(rollout))
    elif request.manifest is not None and is_on_delete(
        kind, part_of(request.manifest.content, "spec")
    ):
        placed.rolling_update.on_delete = True
    return placed


def _rollout(request: PodRequest) -> Rollout | None:
    """How a workload replaces its pods by others that may go elsewhere; None where it does not."""
    kind = request.subject.kind
    if request.manifest is None or kind == "DaemonSet":
        return None
    spec = part_of(request.manifest.content, "spec")
    if _stopped(spec, kind, new_template=True):
        return None
    wrong: list[FieldViolation] = []
    rollout = rollout_of(kind, spec, wrong)
    if wrong:
        raise BadInput(f"{request.title}: {wrong[0].field}: {wrong[0].description}")
    return rollout


def _replicas(request: PodRequest, given: int | None) -> int | None:
    """Number of pods to place; None for a pod of the state, and for one without replicas."""
    if request.source.HasField("ref"):
        return None
    wanted = request.replicas if given is None else given
    if wanted is None and request.next_replica is not None:
        wanted = 1
    if wanted is not None and wanted > MAX_NUMBER:
        raise BadInput(f"{request.title}: {wanted} replicas are more than {MAX_NUMBER}")
    return wanted


def beside(
    requests: Sequence[PodRequest], found: SimulateResponse, state: StatePods
) -> Iterable[str]:
    """Warnings of workloads whose pods in the state are no part of what is asked for."""
    known = {each.pods_index for each in found.workloads}
    texts: dict[str, None] = {}
    for index, each in enumerate(requests):
        pod, kind = each.subject.pod, each.subject.kind
        is_own = kind in (POD, *OWNERS) and not each.several_templates
        if index in known or is_own or each.source.HasField("ref") or not pod.name:
            continue
        workload = _name(each)
        pods = state.pods_of(workload)
        by = {state.controllers(pod)[0] for pod in pods} - {workload}
        makers = sorted(f"{maker.kind}/{maker.name}" for maker in by)
        if pods:
            text = f"{kind} {pod.namespace}/{pod.name} has {counted(len(pods), 'pod')} in the state"
            if makers:
                text += f", by {', '.join(makers[:_NAMED])}"
            texts[f"{text}: what is placed of it is more"] = None
    return texts


def held_back(requests: Sequence[PodRequest], found: SimulateResponse) -> Iterator[str]:
    """Warnings of workloads that do not make the pods, or not all of them, when applied."""
    there = {each.pods_index: bool(each.changed_fields) for each in found.workloads}
    for index, each in enumerate(requests):
        if each.manifest is None:
            continue
        spec = part_of(each.manifest.content, "spec")
        why = _stopped(spec, each.subject.kind, new_template=there.get(index, True))
        if each.subject.kind == "DaemonSet" and index not in there:
            why = "makes a pod for each of its nodes, and tied to it: this is one like them"
        if not why and there.get(index):
            why = _not_rolled_out(each, spec)
        if why:
            pod = each.subject.pod
            yield f"{each.subject.kind} {pod.namespace}/{pod.name} {why}"


def _stopped(spec: Mapping[str, Any], kind: str, *, new_template: bool) -> str:
    """Why a workload makes no pod, or none of a new template."""
    if spec.get("suspend") is True:
        if kind in _NEW_EACH_TIME:
            return "is suspended: it starts no Job until it is resumed"
        return "is suspended: until it is resumed it makes no pods, and those that run are ended"
    if is_paused(spec) and new_template:
        return "is paused: no pod of this template is made until it is resumed"
    return ""


def _not_rolled_out(request: PodRequest, spec: Mapping[str, Any]) -> str:
    """Why a new template does not reach all pods of a workload."""
    if is_on_delete(request.subject.kind, spec):
        return "has updateStrategy OnDelete: a pod gets this template only once it is deleted"
    rollout = _rollout(request)
    if rollout is None or not rollout.partition:
        return ""
    kept = "pods below it" if rollout.ordered else "so many pods"
    return f"has a partition of {rollout.partition}: {kept} keep their template"
