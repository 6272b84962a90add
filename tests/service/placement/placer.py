"""Short ways to place pods in a world."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from tests.service.world import CLUSTER, World, incoming
from topospread.codec.stored import ends_reservation, stored
from topospread.replica.replicas import seconds_from_now
from topospread.replica.view import Consistency, Freshness, Token
from topospread.service.decisions.request import DecisionRequest, NodeSelection, PodRef
from topospread.service.placement.place import Preference, place, release, reserve
from topospread.service.placement.places import Places
from topospread.store.model import Key, Kind, Put, Remove
from topospread_client import object_from_manifest, pod_from_manifest

if TYPE_CHECKING:
    from topospread.service.decisions.engine import Engine
    from topospread.service.placement.tasks import PlacementRequest, PlacementResult

Json = dict[str, Any]


def named(name: str, *constraints: Json, uid: str = "", **spec: Any) -> Json:
    """A pod of the app "web" that looks for a node."""
    pod = incoming(*constraints, **spec)
    pod["metadata"] |= {"name": name} | ({"uid": uid} if uid else {})
    return pod


def bound(pod: Json, node: str) -> Json:
    """The pod on a node."""
    return pod | {"spec": pod["spec"] | {"nodeName": node}}


class Placer:
    """One server's way to hold places."""

    def __init__(self, world: World, engine: Engine | None = None) -> None:
        self.world = world
        self.engine = engine or world.engine
        self.holding = Places(self.engine, world.store)

    def ask(self, **others: Any) -> DecisionRequest:
        """A question about the newest state."""
        newest = Consistency(Freshness.AT_LEAST_AS_FRESH, Token.decode(self.world.revision))
        return DecisionRequest(seconds_from_now(30.0), CLUSTER, consistency=newest, **others)

    def wanted(self, pod: Json | PodRef, lifetime: int = 60_000, **others: Any) -> PlacementRequest:
        """A place for a pod."""
        given = pod if isinstance(pod, PodRef) else pod_from_manifest(pod).SerializeToString()
        return self.holding.new_request(self.ask(**others), given, lifetime)

    def place(
        self,
        pod: Json | PodRef,
        candidates: list[str] | None = None,
        *,
        lifetime: int = 60_000,
        **preference: Any,
    ) -> PlacementResult:
        """Hold the best node."""
        nodes = None if candidates is None else NodeSelection(names=candidates)
        wanted = self.wanted(pod, lifetime, nodes=nodes)
        return self._seen(place(self.holding, wanted, Preference(**preference), untraced))

    def reserve(self, pod: Json | PodRef, node: str) -> PlacementResult:
        """Hold this node."""
        return self._seen(reserve(self.holding, self.wanted(pod), node, untraced))

    def release(self, name: str, uid: str = "") -> bool:
        """End what is held."""
        pod = ("default", name, uid)
        released = release(self.holding, CLUSTER, pod, timeout=10.0, traced=untraced)
        self.world.revision = released.token
        return released.released

    def apply(self, *manifests: Json) -> None:
        """Write objects as ApplyObjects does."""
        messages = [object_from_manifest(manifest) for manifest in manifests]
        puts = [Put(stored(m), ends_reservation(m)) for m in messages if m is not None]
        self._wrote(self.world.store.apply(CLUSTER, puts))

    def delete(self, name: str) -> None:
        """Delete a pod."""
        key = Key(Kind.POD, "default", name)
        self._wrote(self.world.store.apply(CLUSTER, [Remove(key)]))

    def held(self) -> dict[str, str]:
        """The node held for each pod, in the newest state."""
        cluster = self.engine.replicas.resolve(CLUSTER, self.ask().consistency, self.ask().deadline)
        return {pod: row.node_name for pod, row in cluster[1].snapshot.reservations}

    def _wrote(self, applied: Any) -> None:
        self.world.revision = Token(applied.identity, applied.revision).encode()

    def _seen(self, held: PlacementResult) -> PlacementResult:
        self.world.revision = held.token
        return held


def untraced(operation: str, changes: int) -> nullcontext[None]:
    """No span."""
    return nullcontext()
