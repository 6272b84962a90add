"""Places and renewals against a model that recounts what the store has, over two servers that may
be behind it.
"""

from __future__ import annotations

from contextlib import closing
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.reference import affinity, taints
from tests.reference.evaluation import evaluate
from tests.service.placement.placer import Placer, bound, untraced
from tests.service.world import CLUSTER, HOSTNAME, ZONE, Process, World, constraint, node, world
from topospread.codec.reservations import reservation_row
from topospread.codec.stored import object_from_stored
from topospread.replica.replicas import seconds_from_now
from topospread.service.decisions.request import DecisionRequest, PodRef
from topospread.service.fit.question import Fit
from topospread.service.placement.place import Preference, place, reserve
from topospread.store.api import scan_all
from topospread.store.model import Key, Kind, Remove
from topospread_client import manifest_from_object, pod_from_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.index.changes import ReservationRow
    from topospread.service.placement.places import Places
    from topospread.service.placement.tasks import PlacementResult

Json = dict[str, Any]

STEPS = 150
NAMES = [f"p{number}" for number in range(7)]
NODES = [f"n{number}" for number in range(5)]
KEEP_OUT = {"key": "keep-out", "effect": "NoSchedule"}
STANDS_IT = {"key": "keep-out", "operator": "Exists"}
CONSTRAINTS: tuple[list[Json], ...] = (
    [],
    [constraint()],
    [constraint(maxSkew=2), constraint(HOSTNAME)],
    [constraint(nodeTaintsPolicy="Honor")],
    [constraint(minDomains=3)],
    [constraint(app="other")],
)


class Walk:
    """One random history.

    Attributes:
        answers: how many of each kind there were.
    """

    def __init__(self, start: World, other: Process, random: Random) -> None:
        self.random = random
        self.store = start.store
        self.placers = [Placer(start), Placer(start, other.engine)]
        self.answers = dict.fromkeys(("bound", "kept", "chosen", "refused"), 0)

    # ------------------------------ what the store has

    def scanned(self, kind: Kind) -> Iterator[Any]:
        for page in scan_all(self.store, CLUSTER, kind):
            yield from page

    def manifests(self, kind: Kind) -> dict[str, Json]:
        found = {}
        for each in self.scanned(kind):
            found[each.key.name] = manifest_from_object(object_from_stored(each))
        return found

    def held(self) -> dict[str, ReservationRow]:
        return {each.key.name: reservation_row(each) for each in self.scanned(Kind.RESERVATION)}

    # ------------------------------ what happens

    def any_pod(self) -> Json:
        random = self.random
        uid = random.choice(["", "u1", "u2"])
        spec: Json = {"topologySpreadConstraints": random.choice(CONSTRAINTS)}
        if random.random() < 0.2:
            spec["nodeSelector"] = {ZONE: random.choice("abc")}
        if random.random() < 0.3:
            spec["tolerations"] = [STANDS_IT]
        labels = {"app": random.choice(["web", "web", "web", "other"])}
        metadata = {"name": random.choice(NAMES), "namespace": "default", "labels": labels}
        if uid:
            metadata["uid"] = uid
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def change(self) -> None:
        random, placer = self.random, self.random.choice(self.placers)
        way, name = random.random(), random.choice(NODES)
        if way < 0.1:
            zone = random.choice(["a", "b", "c", None])
            tainted = {"spec": {"taints": [KEEP_OUT]}} if random.random() < 0.3 else {}
            placer.apply(node(name, zone) | tainted)
        elif way < 0.15:
            self.store.apply(CLUSTER, [Remove(Key(Kind.NODE, "", name))])
        elif way < 0.2:
            placer.release(random.choice(NAMES), random.choice(["", "u1", "u2"]))
        elif way < 0.3:
            key = Key(Kind.POD, "default", random.choice(NAMES))
            self.store.apply(CLUSTER, [Remove(key, random.choice(["", "u1", "u2"]))])
        elif way < 0.5:
            placer.apply(self.ended(bound(self.any_pod(), name)))
        elif way < 0.55:
            placer.apply(self.any_pod())
        elif way < 0.65:
            self.bind(placer)
        else:
            self.ask(placer.holding)

    def ended(self, pod: Json) -> Json:
        way = self.random.random()
        if way < 0.2:
            return pod | {"status": {"phase": self.random.choice(["Failed", "Succeeded"])}}
        if way < 0.3:
            gone = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
            return pod | {"metadata": pod["metadata"] | gone}
        return pod

    def bind(self, placer: Placer) -> None:
        """A pod goes where it is held."""
        held = self.held()
        if not held:
            return
        name = self.random.choice(sorted(held))
        row = held[name]
        metadata = {"name": name, "namespace": "default", "labels": dict(row.labels)}
        if row.uid:
            metadata["uid"] = row.uid
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}}
        placer.apply(bound(pod, row.node_name))

    # ------------------------------ what is asked

    def ask(self, holding: Places) -> None:
        pod = self.any_pod()
        if self.before_held and self.random.random() < 0.5:
            name = self.random.choice(sorted(self.before_held))
            pod["metadata"] |= {"name": name, "uid": self.before_held[name].uid}
        given: bytes | PodRef = pod_from_manifest(pod).SerializeToString()
        if self.random.random() < 0.2:
            stored = self.manifests(Kind.POD).get(pod["metadata"]["name"])
            if stored is not None:
                pod, given = stored, PodRef(pod["metadata"]["name"])
        wanted = holding.new_request(
            DecisionRequest(seconds_from_now(30.0), CLUSTER), given, 600_000
        )
        if self.random.random() < 0.3:
            name = self.random.choice(NODES)
            self.check(pod, name, reserve(holding, wanted, name, untraced))
        else:
            found = place(
                holding, wanted, Preference(Fit.NODE, str(self.random.random())), untraced
            )
            self.check(pod, "", found)

    def check(self, pod: Json, node_name: str, found: PlacementResult) -> None:
        """Whether the answer follows from what the store had, but for the answer's own place."""
        name, uid = pod["metadata"]["name"], pod["metadata"].get("uid", "")
        known = self.before_pods.get(name)
        if known is not None and self.counts(known):
            others = known["metadata"].get("uid", "")
            if not uid or not others or uid == others:
                assert (found.node, found.already_bound) == (known["spec"]["nodeName"], True)
                self.answers["bound"] += 1
                return
        assert not found.already_bound
        before = self.before_held.get(name)
        allowed = self.allowed(pod, suited=not node_name)
        same = None
        if before is not None and before.is_for(uid):
            same = before.node_name
        if node_name:
            assert bool(found.node) == (node_name in allowed)
        elif same in allowed:
            assert found.node == same
        elif allowed:
            assert found.node in allowed
        else:
            assert found.node == ""
        if found.node:
            row = self.held()[name]
            assert (row.node_name, dict(row.labels)) == (found.node, pod["metadata"]["labels"])
            assert row.uid == (uid or (before.uid if before is not None else ""))
        else:
            assert self.held() == self.before_held
        kept = "kept" if found.node == same else "chosen"
        self.answers[kept if found.node else "refused"] += 1

    @staticmethod
    def counts(pod: Json) -> bool:
        ended = pod.get("status", {}).get("phase") in ("Failed", "Succeeded")
        terminating = "deletionTimestamp" in pod["metadata"]
        return bool(pod.get("spec", {}).get("nodeName")) and not ended and not terminating

    def allowed(self, pod: Json, *, suited: bool) -> set[str]:
        """Where the pod may go, counted from nothing: without what is held for its own name."""
        nodes = self.before_nodes
        pods = list(self.before_pods.values())
        for name, row in self.before_held.items():
            if name != pod["metadata"]["name"]:
                metadata = {"name": f"{name}.held", "namespace": "default"}
                pods.append(
                    {"metadata": metadata | {"labels": dict(row.labels)}}
                    | {"spec": {"nodeName": row.node_name}}
                )
        answer = evaluate({"nodes": list(nodes.values()), "pods": pods}, pod)
        passing = {
            name
            for name in nodes
            if "filter" not in answer or answer["filter"][name]["code"] == "Success"
        }
        if not suited:
            return passing
        return {
            name
            for name in passing
            if affinity.accepts(pod, nodes[name])
            and taints.accepts(pod, nodes[name], comparison_operators=False)
        }

    def step(self) -> None:
        self.before_nodes = self.manifests(Kind.NODE)
        self.before_pods = self.manifests(Kind.POD)
        self.before_held = self.held()
        self.change()


@pytest.mark.parametrize("seed", range(8))
def test_every_answer_follows_from_what_the_store_has(seed: int) -> None:
    with world() as start, closing(Process(start.store)) as other:
        start.apply(*(node(name, zone) for name, zone in zip(NODES, "abcab", strict=True)))
        walk = Walk(start, other, Random(seed))
        for _ in range(STEPS):
            walk.step()
    assert min(walk.answers.values()) > 0, walk.answers
