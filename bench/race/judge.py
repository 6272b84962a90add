"""A plain judge of hard spread constraints, and the replay of a recorded race through it.

The judge recounts everything and knows no index and no NumPy.

It speaks the part of Kubernetes that :mod:`~bench.race.scenario` uses: matchLabels,
matchLabelKeys, minDomains, both inclusion policies, nodeSelector, taints and tolerations, and List
defaults whose selectors come from Services. Sources: KEP-895, KEP-1258, KEP-3022, KEP-3094,
KEP-3243.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from bench.race import scenario
from topospread.codec.reservations import reservation_row
from topospread.codec.stored import object_from_stored
from topospread.kube.demands import CPU
from topospread.store.model import Kind, LogEntry
from topospread_client import manifest_from_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from topospread.index.changes import ReservationRow
    from topospread.store.model import Transaction


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


@dataclass(slots=True)
class RaceFindings:
    """Placements and breaches found in a log.

    Attributes:
        placements: places that were held: new ones and moves, not renewals.
        renewals: the same place written again; judged as well.
        breaches: for each place that the state just before it did not allow, what it was.
        doubles: moments at which a pod counted twice: bound, and held for.
        ended: reservations that ended, in whatever way.
    """

    placements: int = 0
    renewals: int = 0
    breaches: list[str] = field(default_factory=list)
    doubles: list[str] = field(default_factory=list)
    ended: int = 0


class LogReplay:
    """The state of the race at one point of its log, as plain manifests."""

    def __init__(self) -> None:
        self.found = RaceFindings()
        self._nodes: dict[str, Json] = {}
        self._pods: dict[tuple[str, str], Json] = {}
        self._services: dict[tuple[str, str], Json] = {}
        self._held: dict[tuple[str, str], ReservationRow] = {}

    def play(
        self, transactions: Iterable[Transaction], progress: Callable[[int], None]
    ) -> RaceFindings:
        """Judge all placements of the log.

        Args:
            transactions: the whole log, in order.
            progress: called with the number of transactions done.
        """
        for done, transaction in enumerate(transactions, start=1):
            for entry in transaction.entries:
                self._change(entry, transaction.revision.number)
            self._look_for_doubles(transaction)
            progress(done)
        return self.found

    def _change(self, entry: LogEntry, number: int) -> None:
        key = entry.key
        pod = (key.namespace, key.name)
        if key.kind is Kind.RESERVATION:
            self._change_reservation(entry, pod, number)
            return
        manifest = None
        if entry.object is not None:
            manifest = manifest_from_object(object_from_stored(entry.object))
        if key.kind is Kind.NODE:
            _put_or_remove(self._nodes, key.name, manifest)
        elif key.kind is Kind.POD:
            _put_or_remove(self._pods, pod, manifest)
        else:
            _put_or_remove(self._services, pod, manifest)

    def _change_reservation(self, entry: LogEntry, pod: tuple[str, str], number: int) -> None:
        before = self._held.pop(pod, None)
        if entry.object is None:
            self.found.ended += before is not None
            return
        row = reservation_row(entry.object)
        if before is not None and (before.uid, before.node_name) == (row.uid, row.node_name):
            self.found.renewals += 1
        else:
            self.found.placements += 1
        # What was held for the pod, or for a predecessor of its name, ends with this write.
        self._judge(pod, row, number)
        self._held[pod] = row

    def _judge(self, pod: tuple[str, str], row: ReservationRow, number: int) -> None:
        what = f"revision {number}: {pod[0]}/{pod[1]} on {row.node_name}"
        if row.node_name not in self._nodes:
            self.found.breaches.append(f"{what}: there is no such node")
            return
        asked = scenario.pod_named(*pod, cpu=dict(row.requests).get(CPU, scenario.STRICT))
        if dict(row.labels) != asked["metadata"]["labels"]:
            self.found.breaches.append(f"{what}: other labels are held than were asked for")
        if not allows(self._cluster(pod[0]), asked, row.node_name, scenario.ARGS):
            self.found.breaches.append(what)

    def _cluster(self, namespace: str) -> Json:
        """The state as the judge reads it; what is held is a pod on its node."""
        pods = [each for (space, _), each in self._pods.items() if space == namespace]
        pods += [
            {
                "metadata": {"namespace": space, "name": name, "labels": dict(row.labels)},
                "spec": {"nodeName": row.node_name},
            }
            for (space, name), row in self._held.items()
            if space == namespace
        ]
        services = [each for (space, _), each in self._services.items() if space == namespace]
        return {"nodes": list(self._nodes.values()), "pods": pods, "services": services}

    def _look_for_doubles(self, transaction: Transaction) -> None:
        """Check that after a transaction no pod of it is both bound and held for."""
        for entry in transaction.entries:
            pod = (entry.key.namespace, entry.key.name)
            held, bound = self._held.get(pod), self._pods.get(pod)
            if held is None or bound is None or not bound["spec"].get("nodeName"):
                continue
            if held.is_for(bound["metadata"].get("uid", "")):
                number = transaction.revision.number
                self.found.doubles.append(f"revision {number}: {pod[0]}/{pod[1]}")


def _put_or_remove(content: dict[Any, Json], key: Any, manifest: Json | None) -> None:
    if manifest is None:
        content.pop(key, None)
    else:
        content[key] = manifest
