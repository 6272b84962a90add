"""The double's state on a server: its expander chooses, its PlacePod is the scheduler."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from tests.expander.autoscaler import CPU
from tests.expander.requests import asked, best, groups, node, pod, written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.expander.autoscaler import Group, Option, State, Workload
    from tests.servers import Peer
    from topospread_client import Client

ZONE = "topology.kubernetes.io/zone"

_numbers = count()


class OnServer:
    """One run of the double: nodes and pods of a pool of its own, beside those of other runs."""

    def __init__(self, peer: Peer, client: Client) -> None:
        self._peer = peer
        self._client = client
        self._pool = f"pool-{next(_numbers)}"
        self.debug: list[str] = []

    def choose(self, state: State, options: Sequence[Option]) -> Sequence[Group]:
        """What the expander answers to the autoscaler's question."""
        self._show(state)
        growing = [
            (self._template(option.group), option.nodes, self._pending(state, option.pods))
            for option in options
        ]
        request = asked(*growing)
        for group, _ in state.nodes:
            request.node_bytes_map.setdefault(
                group.name, written(self._template(group)).node.SerializeToString()
            )
        answer = best(self._peer.channel, request)
        self.debug.append(answer.options[0].debug)
        named = {group.name: group for group, _ in state.nodes}
        return [named[name] for name in groups(answer)]

    def settle(self, state: State) -> State:
        """Place those that wait, one by one, as far as PlacePod finds a node."""
        self._show(state)
        nodes = {self._node(g, n): (g, n) for g, pods in state.nodes for n in range(len(pods))}
        while state.waiting:
            (incoming,) = self._pending(state, 1)
            answer = self._client.place_pod(incoming)
            if not answer.node:
                break
            state = state.placed(*nodes[answer.node])
            self._client.release_reservation(f"default/{incoming['metadata']['name']}")
            self._show(state)
        return state

    def _show(self, state: State) -> None:
        objects: list[dict[str, Any]] = []
        for group, pods in state.nodes:
            for number, there in enumerate(pods):
                name = self._node(group, number)
                objects.append(node(name, str(group.cpu), zone=group.zone, pool=self._pool))
                objects += [self._pod(state.workload, f"{name}-{n}", name) for n in range(there)]
        if objects:
            self._peer.await_revision(self._peer.apply(*map(written, objects)))

    def _node(self, group: Group, number: int) -> str:
        return f"{self._pool}-{group.name}-{number}"

    def _template(self, group: Group) -> dict[str, Any]:
        return node(group.name, str(group.cpu), zone=group.zone, pool=self._pool)

    def _pending(self, state: State, number: int) -> list[dict[str, Any]]:
        return [self._pod(state.workload, f"{self._pool}-waits-{n}") for n in range(number)]

    def _pod(self, workload: Workload, name: str, on: str = "") -> dict[str, Any]:
        made = pod(name, on, ZONE, str(CPU), self._pool)
        spec = made["spec"]
        spec["nodeSelector"] = {"pool": self._pool}
        constraint = spec["topologySpreadConstraints"][0]
        constraint["maxSkew"] = workload.max_skew
        if not workload.hard:
            constraint["whenUnsatisfiable"] = "ScheduleAnyway"
        if workload.min_domains is not None:
            constraint["minDomains"] = workload.min_domains
        return made
