"""A plain judge of hard spread constraints: recounts everything, knows no index and no NumPy.

It speaks the part of Kubernetes that :mod:`~topospread.cli.bench.race.scenario` uses: matchLabels,
matchLabelKeys, minDomains, both inclusion policies, nodeSelector, taints and tolerations, and List
defaults whose selectors come from Services. Sources: KEP-895, KEP-1258, KEP-3022, KEP-3094,
KEP-3243.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Json = dict[str, Any]

HARD: Final = "DoNotSchedule"
ENDED: Final = ("Succeeded", "Failed")


def allows(cluster: Json, pod: Json, node_name: str, args: Json) -> bool:
    """Whether the pod may go to this node.

    Args:
        cluster: lists of manifests: ``nodes``, ``pods``, ``services``. The pod itself is not there.
        pod: the incoming pod.
        node_name: of a node that is there.
        args: PodTopologySpreadArgs with defaultingType List.
    """
    nodes = cluster["nodes"]
    (target,) = [node for node in nodes if _name(node) == node_name]
    constraints = _hard_constraints(pod, cluster["services"], args)
    keys = {constraint["topologyKey"] for constraint, _ in constraints}
    complete = [node for node in nodes if keys <= _labels(node).keys()]
    for constraint, selector in constraints:
        key = constraint["topologyKey"]
        if key not in _labels(target):
            return False
        matching = _matching_by_domain(constraint, selector, complete, pod, cluster["pods"])
        least = 0
        if len(matching) >= (constraint.get("minDomains") or 1):
            least = min(matching.values(), default=0)
        itself = 1 if _matches(selector, _labels(pod)) else 0
        here = matching.get(_labels(target)[key], 0)
        if here + itself - least > constraint["maxSkew"]:
            return False
    return True


def _hard_constraints(
    pod: Json, services: Iterable[Json], args: Json
) -> list[tuple[Json, dict[str, str] | None]]:
    """The pod's own constraints, or the defaults; each with the labels that must be equal."""
    own = pod["spec"].get("topologySpreadConstraints") or []
    if own:
        return [
            (constraint, _selector(constraint, _labels(pod)))
            for constraint in own
            if constraint["whenUnsatisfiable"] == HARD
        ]
    selector: dict[str, str] = {}
    for service in services:
        wanted = service["spec"].get("selector") or {}
        if wanted and _namespace(service) == _namespace(pod) and _matches(wanted, _labels(pod)):
            selector |= wanted
    if not selector:
        return []
    defaults = args.get("defaultConstraints") or []
    return [(each, selector) for each in defaults if each["whenUnsatisfiable"] == HARD]


def _selector(constraint: Json, pod_labels: Mapping[str, str]) -> dict[str, str] | None:
    given = constraint.get("labelSelector")
    if given is None:
        return None
    keys = constraint.get("matchLabelKeys") or []
    own = {key: pod_labels[key] for key in keys if key in pod_labels}
    return {**(given.get("matchLabels") or {}), **own}


def _matching_by_domain(
    constraint: Json,
    selector: dict[str, str] | None,
    nodes: Iterable[Json],
    incoming: Json,
    pods: Iterable[Json],
) -> dict[str, int]:
    """Matching pods on the counted nodes of each domain that has one."""
    domain_of: dict[str, str] = {}
    for node in nodes:
        honours_affinity = constraint.get("nodeAffinityPolicy") != "Ignore"
        wanted = incoming["spec"].get("nodeSelector") or {}
        if honours_affinity and not wanted.items() <= _labels(node).items():
            continue
        if constraint.get("nodeTaintsPolicy") == "Honor" and not _stands(incoming, node):
            continue
        domain_of[_name(node)] = _labels(node)[constraint["topologyKey"]]
    found = dict.fromkeys(domain_of.values(), 0)
    if not selector:  # nil matches nothing, and upstream counts nothing for an empty one
        return found
    for pod in pods:
        domain = domain_of.get(pod["spec"].get("nodeName") or "")
        counts = (
            domain is not None
            and _namespace(pod) == _namespace(incoming)
            and "deletionTimestamp" not in pod["metadata"]
            and (pod.get("status") or {}).get("phase") not in ENDED
            and _matches(selector, _labels(pod))
        )
        if counts and domain is not None:
            found[domain] += 1
    return found


def _stands(pod: Json, node: Json) -> bool:
    """Whether the pod tolerates the taints that keep pods away."""
    tolerations = pod["spec"].get("tolerations") or []
    for taint in node.get("spec", {}).get("taints") or []:
        if taint["effect"] == "PreferNoSchedule":
            continue
        if not any(_tolerates(toleration, taint) for toleration in tolerations):
            return False
    return True


def _tolerates(toleration: Json, taint: Json) -> bool:
    for part in ("effect", "key"):
        if toleration.get(part) and toleration[part] != taint[part]:
            return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("value", "") == taint.get("value", ""))


def _matches(selector: Mapping[str, str] | None, labels: Mapping[str, str]) -> bool:
    return selector is not None and selector.items() <= labels.items()


def _name(manifest: Json) -> str:
    return str(manifest["metadata"]["name"])


def _namespace(manifest: Json) -> str:
    return str(manifest["metadata"].get("namespace") or "default")


def _labels(manifest: Json) -> dict[str, str]:
    labels: dict[str, str] = manifest["metadata"].get("labels") or {}
    return labels
