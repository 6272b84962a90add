"""A running server, asked as a scheduler asks it: PreFilter, then Filter and Score of its cycle."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

import grpc

from tests.conformance.cases import MEMBERS, Decision, Json
from tests.conformance.objects import KINDS, args_of, gates_of, object_of, objects_of
from tests.servers import Peer, replacement, served
from topospread.spread.verdicts import Code
from topospread_client import pod_from_manifest
from topospread_proto.v1 import cluster_state_service_pb2 as state
from topospread_proto.v1 import common_pb2 as common
from topospread_proto.v1 import decision_service_pb2 as engine
from topospread_proto.v1 import explanation_pb2 as explain

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_AT_ONCE = 500
"""Objects that one ApplyObjects takes."""

SOMETHING: Json = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"namespace": "conformance", "name": "selects-nothing"},
}
"""A cluster is there once something was written to it; this counts nowhere."""


@contextmanager
def over_grpc() -> Iterator[OverGrpc]:
    """A server of its own, behind its stubs."""
    with served() as server, Peer(server.address) as peer:
        evaluator = OverGrpc(peer)
        yield evaluator
        evaluator.close()


@dataclass(frozen=True, eq=False)
class Loaded:
    """A cluster that the server knows: `name` there, and the revision that has all of it."""

    cluster: Json
    name: str
    revision: str
    big: bool


class OverGrpc:
    """A server behind its stubs; every cluster gets a name of its own and is dropped afterwards.

    Big clusters are kept to the end: they take seconds to load, and several tests ask about them.
    """

    members = MEMBERS

    def __init__(self, peer: Peer) -> None:
        self._state = peer.state
        self.engine, self.inspector = peer.engine, peer.inspector
        self._numbers = count(1)
        self._loaded: list[Loaded] = []
        self._table = ("", list[str]())

    def evaluate(self, case: Decision) -> Json:
        """See Evaluator."""
        place = self.load(case.cluster)
        try:
            begun = self.engine.PreFilter(self._pre_filter(place, case))
        except grpc.RpcError as refused:
            return {"newError": why_invalid(refused)}
        answer: Json = {"preFilter": status_of(begun.verdict)}
        if begun.verdict.code == common.VERDICT_CODE_ERROR:
            return answer
        verdicts = self._filter(place, begun.cycle)
        if begun.verdict.code == common.VERDICT_CODE_SUCCESS:
            if case.ops:
                # Additions come first in the answer; all statuses are alike.
                answer["ops"] = [status_of(status) for status in begun.extension_verdicts]
            answer["filter"] = verdicts
        passing = [name for name, status in verdicts.items() if status["code"] == "Success"]
        return answer | self._score(place, begun.cycle, passing, case.filter_nodes)

    def condition(self, case: Decision) -> Json | None:
        """See Evaluator."""
        try:
            evaluation = self.evaluation(case)
        except grpc.RpcError as refused:
            why_invalid(refused)  # which raises what is refused for another reason
            return None
        if not evaluation.reason:
            return None
        return {"reason": evaluation.reason, "message": evaluation.message}

    def evaluation(self, case: Decision, top_k: int = 0) -> engine.EvaluatePodResponse:
        """What EvaluatePod, which asks all at once, says of a case; all nodes are scored."""
        place = self.load(case.cluster)
        add, remove = what_ifs(case.ops)
        return self.engine.EvaluatePod(
            engine.EvaluatePodRequest(
                cluster=place.name,
                pod=common.PodSource(object=pod_from_manifest(case.pod)),
                top_k=top_k,
                add_pods=add,
                remove_pods=remove,
                settings=self.settings(case),
                consistency=common.Consistency(at_least_as_fresh=place.revision),
            )
        )

    def explanation(self, case: Decision, domain_limit: int) -> explain.Explanation:
        """What ExplainPod says of a case, looking at spreading alone, without its what-ifs."""
        return self.explained(case, domain_limit).explanation

    def explained(self, case: Decision, limit: int) -> engine.ExplainPodResponse:
        """The same with the evaluation; `limit` is of nodes and of domains."""
        place = self.load(case.cluster)
        return self.engine.ExplainPod(
            engine.ExplainPodRequest(
                cluster=place.name,
                pod=common.PodSource(object=pod_from_manifest(case.pod)),
                settings=self.settings(case),
                consistency=common.Consistency(at_least_as_fresh=place.revision),
                fit=common.FIT_SPREAD_ONLY,
                domain_limit=limit,
                top_k=limit,
            )
        )

    def plain_evaluation(
        self, place: Loaded, pod: Json, top_k: int = 0
    ) -> engine.EvaluatePodResponse:
        """The same by the server's own rules, without what-ifs, at the newest state at hand.

        That is how a question is asked that a server reads no further than it must.
        """
        self.await_revision(place)
        return self.engine.EvaluatePod(
            engine.EvaluatePodRequest(
                cluster=place.name, pod=common.PodSource(object=pod_from_manifest(pod)), top_k=top_k
            )
        )

    def await_revision(self, place: Loaded) -> None:
        """See to it that the server's newest state has all of a cluster."""
        fresh = common.Consistency(at_least_as_fresh=place.revision)
        self._state.GetNodeTable(state.GetNodeTableRequest(cluster=place.name, consistency=fresh))

    def settings(self, case: Decision) -> common.Settings | None:
        """By which rules the server is asked to judge: those of the case, in the request itself."""
        return common.Settings(args=args_of(case.args), feature_gates=gates_of(case.gates))

    def load(self, cluster: Json) -> Loaded:
        """Have the server know a cluster; it forgets the small one before."""
        for place in self._loaded:
            if place.cluster is cluster:
                return place
        self._drop([place for place in self._loaded if not place.big])
        name = f"case-{next(self._numbers)}"
        objects = [*objects_of(cluster), object_of(SOMETHING)]
        big = len(objects) > MOST_AT_ONCE
        if big:
            revision = self._replace(name, cluster)
        else:
            request = state.ApplyObjectsRequest(cluster=name, objects=objects)
            revision = self._state.ApplyObjects(request).meta.revision
        if version := cluster.get("kubernetesVersion"):
            # With one of the lists, as those do who push what an API server has.
            services = [object_of(SOMETHING), *map(object_of, cluster.get("services") or ())]
            messages = replacement(
                *services,
                cluster=name,
                kind=common.KIND_SERVICE,
                kubernetes_version=version,
            )
            revision = self._state.ReplaceObjects(iter(messages)).meta.revision
        self._loaded.append(Loaded(cluster, name, revision, big))
        return self._loaded[-1]

    def change(self, place: Loaded, changed: Json, *, gone: bool) -> Loaded:
        """Write an object of a loaded cluster, or delete it."""
        message = object_of(changed)
        if not gone:
            request = state.ApplyObjectsRequest(cluster=place.name, objects=[message])
            return replace(place, revision=self._state.ApplyObjects(request).meta.revision)
        field = message.WhichOneof("content")
        assert field is not None
        reference = state.ObjectReference(
            kind=common.Kind.Value(f"KIND_{field.upper()}"),
            namespace=changed["metadata"].get("namespace", ""),
            name=changed["metadata"]["name"],
        )
        deletion = state.DeleteObjectsRequest(cluster=place.name, objects=[reference])
        return replace(place, revision=self._state.DeleteObjects(deletion).meta.revision)

    def close(self) -> None:
        """Have the server forget all clusters."""
        self._drop(list(self._loaded))

    def _drop(self, places: list[Loaded]) -> None:
        for place in places:
            self._state.DeleteCluster(state.DeleteClusterRequest(cluster=place.name))
            self._loaded.remove(place)

    def _replace(self, name: str, cluster: Json) -> str:
        revision = ""
        for kind, number in KINDS.items():
            objects = map(object_of, cluster.get(kind) or ())
            messages = replacement(*objects, cluster=name, kind=number)
            answer = self._state.ReplaceObjects(iter(messages))
            revision = answer.meta.revision
        return revision

    def _pre_filter(self, place: Loaded, case: Decision) -> engine.PreFilterRequest:
        add, remove = what_ifs(case.ops)
        return engine.PreFilterRequest(
            cluster=place.name,
            pod=common.PodSource(object=pod_from_manifest(case.pod)),
            add_pods=add,
            remove_pods=remove,
            settings=self.settings(case),
            consistency=common.Consistency(at_least_as_fresh=place.revision),
        )

    def _filter(self, place: Loaded, cycle: str) -> Json:
        """Verdicts by node; the names come from the node table at hand while that is current."""
        held, names = self._table
        request = engine.FilterRequest(cluster=place.name, cycle=cycle, node_table_id=held)
        response = self.engine.Filter(request)
        if response.node_table_id != held:
            names = list(response.node_names)
            self._table = response.node_table_id, names
        table = [status_of(status) for status in response.verdict_table]
        return {
            name: table[verdict] for name, verdict in zip(names, response.verdicts, strict=True)
        }

    def _score(
        self, place: Loaded, cycle: str, passing: list[str], chosen: list[str] | None
    ) -> Json:
        """The members preScore, score and normalized; none when no node is left."""
        names = passing if chosen is None else chosen
        if not names:
            return {}
        request = engine.ScoreRequest(cluster=place.name, cycle=cycle)
        if chosen is not None:
            request.candidates.names.names.extend(chosen)
        response = self.engine.Score(request)
        answer: Json = {"preScore": status_of(response.verdict)}
        if response.verdict.code == common.VERDICT_CODE_SUCCESS:
            if chosen is None:
                names = list(response.node_names)
            answer["score"] = dict(zip(names, response.raw, strict=True))
            answer["normalized"] = dict(zip(names, response.normalized, strict=True))
        return answer


def what_ifs(ops: list[Json]) -> tuple[list[common.PodOnNode], list[common.PodOnNode]]:
    """The pods to add and those to remove; with a true minimum their order does not matter."""
    moves: dict[str, list[common.PodOnNode]] = {"add": [], "remove": []}
    for op in ops:
        pod = pod_from_manifest(op["pod"])
        moves[op["op"]].append(common.PodOnNode(pod=common.PodSource(object=pod), node=op["node"]))
    return moves["add"], moves["remove"]


def status_of(status: common.Verdict) -> Json:
    """A status as the recorded answers write it."""
    return {"code": label_of(status), "reasons": list(status.reasons)}


def label_of(verdict: common.Verdict) -> str:
    """Upstream's name of a verdict's code."""
    return Code[common.VerdictCode.Name(verdict.code).removeprefix("VERDICT_CODE_")].label


def why_invalid(refused: Any) -> str:
    """What a refused call says; anything but INVALID_ARGUMENT is raised again."""
    if refused.code() is not grpc.StatusCode.INVALID_ARGUMENT:
        raise refused
    return str(refused.details())
