"""The scheduler extender as kube-scheduler calls it: whole servers, bytes in and bytes out."""

from __future__ import annotations

import gzip
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from http.client import HTTPConnection

import httpx
import pytest

from tests.access.callers import AccessFile
from tests.http.extender_client import (
    HOST,
    REASON,
    SAMPLES,
    Scheduler,
    node,
    pod,
    sample,
    spreading,
)
from tests.servers import ZONE, served
from tests.telemetry.expositions import value
from tests.waiting import PATIENCE, until
from topospread.checkpoints import BRIEF, checkpoint
from topospread.http import extender
from topospread.service.extender import assumed
from topospread.service.extender.extend import filter_and_assume
from topospread_proto.v1 import placement_service_pb2
from topospread_proto.v1.placement_service_pb2_grpc import PlacementServiceStub

NAMES = [f"n{number:04}" for number in range(6)]
"""The nodes of the samples: two a zone."""

LIMIT = 1 << 20


@pytest.fixture(scope="module")
def scheduler():
    """One server for tests that change nothing: the samples' nodes, and two pods in zone a.

    None of the pods that it is asked about is assumed to be on its way.
    """
    with (
        pytest.MonkeyPatch.context() as patch,
        served(http="127.0.0.1:0", http_max_body_bytes=LIMIT) as server,
        Scheduler(server) as scheduler,
    ):
        patch.setattr(assumed, "ASSUMED_SECONDS", 0.0)
        scheduler.write(*nodes(), pod("one", "n0000"), pod("two", "n0003"))
        yield scheduler


@pytest.fixture
def fresh():
    """A server of the test's own with the same nodes and no pods."""
    with served(http="127.0.0.1:0") as server, Scheduler(server) as scheduler:
        scheduler.write(*nodes())
        yield scheduler


def nodes():
    """As in the samples: n0000 and n0003 are in zone a, and so on."""
    return [node(name, zone=f"zone-{'abc'[number % 3]}") for number, name in enumerate(NAMES)]


# ------------------------------ memory for bodies


def test_bodies_under_way_hold_memory_for_their_caller():
    with (
        served(http="127.0.0.1:0", max_held_bytes="4MiB") as server,
        Scheduler(server) as scheduler,
        socket.create_connection(
            ("127.0.0.1", int(server.http_address.rpartition(":")[2])), timeout=PATIENCE
        ) as slow,
    ):
        scheduler.write(*nodes())
        head = (
            "POST /extender/v1/default/filter HTTP/1.1\r\nhost: x\r\ncontent-length: 400000\r\n\r\n"
        )
        slow.sendall(head.encode() + bytes(390_000))

        def refused() -> bool:
            return "too much is kept" in scheduler.post("filter", bytes(300_000)).text

        until(refused, "there is no room for a second one")
        assert scheduler.post("filter", sample("cached-filter")).json()["Error"] == ""
        slow.close()
        until(lambda: not refused(), "what has gone is held no more")
        assert scheduler.post("filter", bytes(600_000)).status_code == 413


# ------------------------------ what real schedulers sent


def test_a_cached_filter_of_a_real_scheduler(scheduler):
    answer = scheduler.post("filter", sample("cached-filter"))
    assert answer.headers["content-type"] == "application/json"
    result = answer.json()
    assert list(result) == [
        *("Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error")
    ]
    assert result["Nodes"] is None
    assert result["NodeNames"] == ["n0001", "n0002", "n0004", "n0005"]
    why = f"{REASON}: {ZONE}=zone-a would have 3 matching pods where the fewest are 0 (maxSkew 1)"
    assert result["FailedNodes"] == {"n0000": why, "n0003": why}
    assert result["FailedAndUnresolvableNodes"] == {}
    assert result["Error"] == ""


def test_a_full_filter_of_a_real_scheduler(scheduler):
    body = sample("full-filter")
    result = scheduler.post("filter", body).json()
    sent = {item["metadata"]["name"]: item for item in json.loads(body)["Nodes"]["items"]}
    assert result["NodeNames"] is None
    kept = result["Nodes"]["items"]
    assert sorted(item["metadata"]["name"] for item in kept) == ["n0001", "n0002", "n0004", "n0005"]
    # Whole and unchanged: the scheduler goes on with these instead of its own.
    assert all(item == sent[item["metadata"]["name"]] for item in kept)
    assert sorted(result["FailedNodes"]) == ["n0000", "n0003"]


@pytest.mark.parametrize("name", ["cached-prioritize", "full-prioritize"])
def test_a_prioritize_of_a_real_scheduler(scheduler, name):
    scores = scheduler.post("prioritize", sample(name)).json()
    assert sorted(score["Host"] for score in scores) == NAMES
    # The pod has a hard constraint alone, so that nothing tells the nodes apart.
    assert {score["Score"] for score in scores} == {0}


def test_every_sample_of_the_extender_is_asked():
    assert {path.name for path in SAMPLES.glob("extender-*.raw")} == {
        f"extender-{name}.raw"
        for name in ("cached-filter", "cached-prioritize", "full-filter", "full-prioritize")
    }


def test_answers_are_what_the_probes_of_a_real_scheduler_took(scheduler):
    """extender-probes.txt: names of the request alone, integers, no empty object, status 200."""
    result = scheduler.ask("filter", spreading("probe"), NAMES)
    assert set(result["NodeNames"]) < set(NAMES)
    soft = spreading("probe", action="ScheduleAnyway")
    scores = scheduler.ask("prioritize", soft, NAMES)
    assert all(type(score["Score"]) is int and 0 <= score["Score"] <= 10 for score in scores)
    assert scheduler.ask("filter", spreading("probe"), [])["NodeNames"] == []


# ------------------------------ keys, modes, clusters


def test_keys_are_read_whatever_their_case(scheduler):
    args = {"pod": spreading("probe"), "nodes": None, "nodenames": NAMES}
    answer = scheduler.post("filter", json.dumps(args).encode())
    assert answer.json()["NodeNames"] == ["n0001", "n0002", "n0004", "n0005"]


@pytest.mark.parametrize("verb", ["other/filter", "filter?cluster=other"])
def test_a_cluster_is_in_the_path_or_the_query(scheduler, verb):
    scheduler.write(node("elsewhere", zone="z"), cluster="other")
    assert scheduler.ask(verb, spreading("probe"), ["elsewhere"])["NodeNames"] == ["elsewhere"]


def test_two_names_of_a_cluster_must_be_one(scheduler):
    answer = scheduler.post("one/filter?cluster=two", b"{}")
    assert answer.status_code == 400
    assert "the path names cluster 'one', and the query 'two'" in answer.json()["Error"]


def test_an_unknown_cluster_is_reported_on_the_pod(scheduler):
    result = scheduler.ask("nowhere/filter", spreading("probe"), NAMES)
    assert "cluster 'nowhere' is not known" in result["Error"]


# ------------------------------ verdicts


def test_a_node_without_the_label_cannot_be_helped(scheduler):
    scheduler.write(*nodes(), node("bare"), cluster="labels")
    result = scheduler.ask("labels/filter", spreading("probe"), ["n0000", "bare"])
    assert result["NodeNames"] == ["n0000"]
    assert result["FailedNodes"] == {}
    text = f"{REASON} (missing required label): {ZONE}"
    assert result["FailedAndUnresolvableNodes"] == {"bare": text}


def test_min_domains_is_named_where_it_decides(scheduler):
    result = scheduler.ask("filter", spreading("probe", minDomains=4), NAMES)
    assert result["NodeNames"] == ["n0001", "n0002", "n0004", "n0005"]
    assert result["FailedNodes"]["n0000"].endswith(
        "where the fewest are 0 (maxSkew 1; minDomains 4 of which there are 3)"
    )


def test_the_first_constraint_that_refuses_is_named(scheduler):
    call = spreading("probe")
    call["spec"]["topologySpreadConstraints"] += spreading("x", key=HOST)["spec"][
        "topologySpreadConstraints"
    ]
    scheduler.write(*nodes(), pod("a", "n0001"), pod("b", "n0000"), cluster="keys")
    scheduler.write(pod("c", "n0005"), cluster="keys")
    result = scheduler.ask("keys/filter", call, NAMES)
    # Each zone has one pod; nodes with a pod would be ahead of those without.
    assert result["NodeNames"] == ["n0002", "n0003", "n0004"]
    assert result["FailedNodes"]["n0001"] == (
        f"{REASON}: {HOST}=n0001 would have 2 matching pods where the fewest are 0 (maxSkew 1)"
    )


def test_many_domains_have_one_message(scheduler):
    names = [f"host-{number}" for number in range(100)]
    taken = [pod(f"on-{name}", name) for name in names[:80]]
    scheduler.write(*map(node, names), *taken, cluster="many")
    result = scheduler.ask("many/filter", spreading("probe", key=HOST), names)
    assert result["NodeNames"] == names[80:]
    said = "would be too far ahead of the fewest matching pods which are 0 (maxSkew 1)"
    assert set(result["FailedNodes"].values()) == {f"{REASON}: this node's {HOST} {said}"}


def test_a_pod_without_constraints_may_go_anywhere(scheduler):
    names = [*NAMES, "stranger"]
    assert scheduler.ask("filter", pod("plain", app="other"), names)["NodeNames"] == names


def test_a_node_that_is_not_in_the_state_is_refused_and_counted(scheduler):
    before = unknown_nodes(scheduler)
    result = scheduler.ask("filter", spreading("probe"), ["n0001", "stranger"])
    assert result["NodeNames"] == ["n0001"]
    assert result["FailedAndUnresolvableNodes"] == {
        "stranger": "node is not in the cluster's state: not known in cluster 'default'"
    }
    assert unknown_nodes(scheduler) == before + 1


def test_a_whole_node_that_is_not_in_the_state_is_judged_by_its_labels(scheduler):
    before = unknown_nodes(scheduler)
    joining = [node("new-a", zone="zone-a"), node("new-d", zone="zone-d"), node("bare")]
    known = [node("n0001", zone="zone-b"), node("n0000", zone="zone-a")]
    args = {"Pod": spreading("probe"), "Nodes": {"items": [*known, *joining]}}
    result = scheduler.post("filter", json.dumps(args).encode()).json()
    kept = [item["metadata"]["name"] for item in result["Nodes"]["items"]]
    assert kept == ["n0001", "new-d"]
    assert sorted(result["FailedNodes"]) == ["n0000", "new-a"]
    assert list(result["FailedAndUnresolvableNodes"]) == ["bare"]
    assert unknown_nodes(scheduler) == before + 1


def test_a_new_domain_counts_for_the_minimum(scheduler):
    """Each zone of the state has a pod in this cluster: only a zone that is new is behind."""
    scheduler.write(*nodes(), *(pod(f"on-{n}", n) for n in NAMES[:3]), cluster="even")
    args = {
        "Pod": spreading("probe"),
        "Nodes": {"items": [*nodes(), node("new-d", zone="zone-d")]},
    }
    result = scheduler.post("even/filter", json.dumps(args).encode()).json()
    assert [item["metadata"]["name"] for item in result["Nodes"]["items"]] == ["new-d"]


def test_a_malformed_node_is_reported(scheduler):
    odd = node("odd") | {"spec": {"taints": 7}}
    args = {"Pod": spreading("probe"), "Nodes": {"items": [odd]}}
    result = scheduler.post("filter", json.dumps(args).encode()).json()
    assert result["Error"].startswith("Node.spec.taints: ")


def unknown_nodes(scheduler):
    return counted(scheduler, "topospread_extender_unknown_nodes_total")


def counted(scheduler, name):
    exposed = scheduler.http.get("/metrics").content
    return value(exposed, name, cluster="default") if name.encode() + b"{" in exposed else 0


def test_a_malformed_constraint_is_reported_on_the_pod(scheduler):
    bad = {"matchExpressions": [{"key": "app", "operator": "Near", "values": []}]}
    result = scheduler.ask("filter", spreading("probe", labelSelector=bad), NAMES)
    assert result["NodeNames"] is None
    assert '"Near" is not a valid label selector operator' in result["Error"]


def test_scores_follow_the_plugin(scheduler):
    soft = spreading("probe", action="ScheduleAnyway")
    scores = scheduler.ask("prioritize", soft, [*NAMES, "stranger"])
    by_host = {score["Host"]: score["Score"] for score in scores}
    assert {by_host[name] for name in ("n0001", "n0002", "n0004", "n0005")} == {10}
    assert by_host["n0000"] == by_host["n0003"] < 10
    assert by_host["stranger"] == 0


# ------------------------------ place


def test_a_whole_node_that_is_not_in_the_state_is_scored_by_its_labels(scheduler):
    full, empty = node("n0000", zone="zone-a"), node("n0002", zone="zone-c")
    scheduler.write(full, empty, pod("on-it", "n0000"), cluster="soft")
    soft = spreading("probe", action="ScheduleAnyway")
    joining = [node("new1", zone="zone-d"), node("new2", zone="zone-a")]
    args = {"Pod": soft, "Nodes": {"items": [full, empty, *joining]}}
    scores = scheduler.post("soft/prioritize", json.dumps(args).encode()).json()
    by_host = {score["Host"]: score["Score"] for score in scores}
    assert by_host["new1"] == by_host["n0002"] == 10
    assert by_host["new2"] == by_host["n0000"] < 10


def test_place_answers_one_node_and_holds_it(fresh):
    first = fresh.ask("place", spreading("a"), NAMES)
    assert len(first["NodeNames"]) == 1
    assert first["FailedNodes"] == {}
    # Called again, the answer is the same; and others know of it.
    assert fresh.ask("filter?mode=place", spreading("a"), NAMES) == first
    held = zone_of(first["NodeNames"][0])
    left = fresh.ask("filter", spreading("b"), NAMES)["NodeNames"]
    assert held not in set(map(zone_of, left))


def test_a_burst_keeps_the_skew(fresh):
    def placed(number):
        return fresh.ask("place", spreading(f"p{number}"), NAMES)["NodeNames"]

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(placed, range(20)))
    zones = [zone_of(name) for (name,) in found]
    counts = [zones.count(zone) for zone in ("a", "b", "c")]
    assert max(counts) - min(counts) <= 1


def test_a_place_ends_with_the_bound_pod(fresh):
    (name,) = fresh.ask("place", spreading("a"), NAMES)["NodeNames"]
    assert held_pods(fresh) == ["a"]
    fresh.write(pod("a", name))
    assert held_pods(fresh) == []


def test_a_place_is_refused_with_the_domains(fresh):
    fresh.write(pod("one", "n0000"), pod("two", "n0003"))
    result = fresh.ask("place", spreading("a"), ["n0000", "n0003"])
    assert result["NodeNames"] == []
    assert set(result["FailedNodes"]) == {"n0000", "n0003"}
    assert held_pods(fresh) == []


def test_only_hard_constraints_need_a_place(fresh):
    for call in (pod("plain", app="other"), spreading("soft", action="ScheduleAnyway")):
        assert fresh.ask("place", call, NAMES)["NodeNames"] == NAMES
    assert held_pods(fresh) == []


def test_a_pod_without_a_name_cannot_have_a_place(fresh):
    result = fresh.ask("place", spreading(""), NAMES)
    assert "metadata.name" in result["Error"]


def test_the_mode_may_be_configured_and_a_url_goes_before_it():
    with served(http="127.0.0.1:0", extender="place") as server, Scheduler(server) as scheduler:
        scheduler.write(*nodes())
        assert len(scheduler.ask("filter?mode=filter", spreading("a"), NAMES)["NodeNames"]) == 6
        assert len(scheduler.ask("filter", spreading("a"), NAMES)["NodeNames"]) == 1
        # Scores hold nothing.
        assert len(scheduler.ask("prioritize", spreading("b"), NAMES)) == 6
        assert held_pods(scheduler) == ["a"]


def zone_of(name):
    return "abc"[NAMES.index(name) % 3]


def held_pods(scheduler):
    """The names of the pods that places are held for."""
    stub = PlacementServiceStub(scheduler.peer.channel)
    answer = stub.ListReservations(placement_service_pb2.ListReservationsRequest())
    return [reservation.pod.name for reservation in answer.reservations]


# ------------------------------ HTTP


def test_one_connection_serves_many_calls(scheduler):
    before = scheduler.http.get("/livez").extensions["network_stream"]
    for _ in range(3):
        answer = scheduler.post("filter", sample("cached-filter"))
        assert answer.extensions["network_stream"] is before
        assert answer.headers.get("connection") != "close"


def test_long_answers_are_packed_for_those_who_like_it(scheduler):
    names = [f"stranger-{number}" for number in range(100)]
    body = json.dumps({"Pod": spreading("a"), "NodeNames": names}).encode()
    compressed = scheduler.post("filter", body)
    assert compressed.headers["content-encoding"] == "gzip"
    assert int(compressed.headers["content-length"]) < len(compressed.content) / 5
    for accepted in ("identity", "gzip;q=0", "br"):
        plain = scheduler.post("filter", body, **{"accept-encoding": accepted})
        assert "content-encoding" not in plain.headers
        assert plain.json() == compressed.json()


def test_packed_requests_are_read(scheduler):
    body = gzip.compress(sample("cached-filter"))
    answer = scheduler.post("filter", body, **{"content-encoding": "gzip"})
    assert answer.json()["NodeNames"] == ["n0001", "n0002", "n0004", "n0005"]


def test_an_answer_carries_the_callers_trace(scheduler):
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    answer = scheduler.post("filter", sample("cached-filter"), **headers)
    assert answer.headers["traceparent"].split("-")[1] == trace


POD = json.dumps(spreading("a"))

BAD = {
    "nothing": (b"", 400, "no ExtenderArgs in JSON"),
    "truncated": (sample("cached-filter")[:-9], 400, "no ExtenderArgs in JSON"),
    "a list": (b"[]", 400, "must be a JSON object"),
    "no pod": (b'{"NodeNames":[]}', 400, "Pod: Required value"),
    "a pod that is none": (b'{"Pod":[],"NodeNames":[]}', 400, "Pod: must be an object"),
    "no metadata": (b'{"Pod":{"metadata":7},"NodeNames":[]}', 400, "Pod.metadata: must be"),
    "a name that is none": (
        b'{"Pod":{"metadata":{"name":7}},"NodeNames":[]}',
        400,
        "Pod.metadata.name: must be a string",
    ),
    "no nodes": (f'{{"Pod":{POD},"Nodes":null,"NodeNames":null}}'.encode(), 400, "both null"),
    "names that are none": (f'{{"Pod":{POD},"NodeNames":[1]}}'.encode(), 400, "NodeNames: must"),
    "nodes that are none": (f'{{"Pod":{POD},"Nodes":[]}}'.encode(), 400, "Nodes: must be"),
    "a node without a name": (
        f'{{"Pod":{POD},"Nodes":{{"items":[{{}}]}}}}'.encode(),
        400,
        "Nodes.items[0].metadata.name",
    ),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("verb", ["filter", "place", "prioritize"])
def test_malformed_requests_are_explained(scheduler, name, verb):
    body, status, text = BAD[name]
    answer = scheduler.post(verb, body)
    assert answer.status_code == status
    assert text in answer.json()["Error"]


def test_a_malformed_pod_is_reported_with_its_path(scheduler):
    call = spreading("a", maxSkew="one")
    result = scheduler.ask("filter", call, NAMES)
    assert result["Error"].startswith("Pod.spec.topologySpreadConstraints[0].maxSkew: ")
    args = json.dumps({"Pod": call, "NodeNames": NAMES}).encode()
    answer = scheduler.post("prioritize", args)
    assert (answer.status_code, answer.json()["Error"]) == (400, result["Error"])


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/extender/v1/bind", 404),
        ("POST", "/extender/v1/", 404),
        ("POST", "/extender/v2/filter", 404),
        ("POST", "/extender/v1/a/b/filter", 404),
        ("GET", "/extender/v1/filter", 405),
        ("POST", "/extender/v1/filter?mode=guess", 400),
        ("POST", "/extender/v1/filter?clutser=a", 400),
    ],
)
def test_calls_that_there_are_not(scheduler, method, path, status):
    answer = scheduler.http.request(method, path)
    assert answer.status_code == status
    assert answer.json()["Error"]


def test_failures_are_counted_by_verb_and_kind(fresh):
    fresh.post("filter", b"{")
    fresh.post("bind", b"{}")
    fresh.ask("nowhere/filter", spreading("a"), NAMES)
    exposed = fresh.http.get("/metrics").content
    for method, code in (
        ("Extender/filter", "INVALID_ARGUMENT"),
        ("Extender/other", "UNIMPLEMENTED"),
        ("Extender/filter", "NOT_FOUND"),
    ):
        assert value(exposed, "topospread_calls_total", method=method, code=code) == 1


def test_a_full_queue_is_reported_as_kube_scheduler_shows_it(monkeypatch):
    monkeypatch.setattr("topospread.app.capacity.STATE_THREADS", 1)
    monkeypatch.setattr("topospread.app.capacity.STATE_QUEUE", 1)
    with served(http="127.0.0.1:0") as server, Scheduler(server) as scheduler:
        scheduler.write(*nodes())
        pool = server.pools.executors["state"]
        with pool.paused():
            begun, in_line = pool.submit(int), pool.submit(int)
            result = scheduler.ask("place", spreading("a"), NAMES)
            args = json.dumps({"Pod": spreading("a"), "NodeNameToMetaVictims": {}}).encode()
            preempted = scheduler.post("preempt", args)
        text = "too many calls at once (state): try again later"
        assert (result["NodeNames"], result["Error"]) == (None, text)
        assert (preempted.status_code, preempted.json()["Error"]) == (429, text)
        assert (begun.result(), in_line.result()) == (0, 0)
        exposed = scheduler.http.get("/metrics").content
        full = {"method": "Extender/filter", "code": "RESOURCE_EXHAUSTED"}
        assert value(exposed, "topospread_calls_total", **full) == 1


# ------------------------------ access


@pytest.mark.parametrize("listening", [{"http": "127.0.0.1:0"}, {"extender_listen": "127.0.0.1:0"}])
def test_a_call_needs_the_role_decide_for_its_cluster(tmp_path, listening):
    access = AccessFile(tmp_path / "access.json", bound=["decide@prod"], read=["read"])
    with served(**listening, access_file=str(access)) as server:
        address = server.extender_address or server.http_address
        for name, cluster, status in (
            ("bound", "prod", 200),
            ("bound", "default", 403),
            ("read", "prod", 403),
            ("", "prod", 401),
        ):
            answer = httpx.post(
                f"http://{address}/extender/v1/{cluster}/filter",
                content=sample("cached-filter"),
                headers=dict(access.bearer(name)) if name else {},
                trust_env=False,
                timeout=PATIENCE,
            )
            assert answer.status_code == status


# ------------------------------ bounds


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_past_the_limit_is_refused_before_it_is_read(scheduler, chunked):
    url = scheduler.http.base_url
    with closing(HTTPConnection(url.host, url.port, timeout=PATIENCE)) as connection:
        connection.putrequest("POST", "/extender/v1/filter")
        if chunked:
            connection.putheader("transfer-encoding", "chunked")
            connection.endheaders()
            # One byte too many, and no end.
            connection.send(f"{LIMIT + 2:x}\r\n".encode() + b" " * (LIMIT + 1))
        else:
            connection.putheader("content-length", str(200 << 20))
            connection.endheaders()
        answer = connection.getresponse()
        assert answer.status == 413
        assert f"larger than {LIMIT} bytes" in json.load(answer)["Error"]
    assert scheduler.post("filter", sample("cached-filter")).status_code == 200


def test_decompressed_bodies_are_bounded(scheduler):
    bomb = gzip.compress(b" " * (64 * LIMIT))
    assert len(bomb) < LIMIT
    answer = scheduler.post("filter", bomb, **{"content-encoding": "gzip"})
    assert answer.status_code == 413


@pytest.mark.parametrize(
    ("body", "encoding", "status", "text"),
    [
        pytest.param(b"{}", "gzip", 400, "no gzip", id="plain"),
        pytest.param(gzip.compress(b"{}")[:-4], "gzip", 400, "incomplete", id="cut"),
        pytest.param(gzip.compress(b"{}") * 2, "gzip", 400, "follows its end", id="twice"),
        pytest.param(b"{}", "br", 415, "send gzip, or none", id="br"),
    ],
)
def test_bodies_that_do_not_unpack(scheduler, body, encoding, status, text):
    answer = scheduler.post("filter", body, **{"content-encoding": encoding})
    assert answer.status_code == status
    assert text in answer.json()["Error"]


def test_json_that_is_nested_without_end_is_refused(scheduler):
    answer = scheduler.post("filter", b'{"Pod":' + b"[" * 100_000)
    assert answer.status_code == 400


# ------------------------------ listening


def test_the_extender_may_have_an_address_of_its_own():
    with (
        served(http="127.0.0.1:0", extender_listen="127.0.0.1:0") as server,
        Scheduler(server) as scheduler,
    ):
        scheduler.write(*nodes())
        assert scheduler.ask("filter", spreading("a"), NAMES)["NodeNames"] == NAMES
        assert scheduler.http.get("/metrics").status_code == 404
        beside = httpx.post(
            f"http://{server.http_address}/extender/v1/filter", trust_env=False, timeout=PATIENCE
        )
        assert beside.status_code == 404


def test_the_extender_may_be_off():
    with served(http="127.0.0.1:0", extender="off") as server, Scheduler(server) as scheduler:
        assert scheduler.post("filter", sample("cached-filter")).status_code == 404


def test_a_filter_that_takes_long_holds_no_other_connection_up(fresh, monkeypatch):
    """One thread reads all connections: it is not the one that waits for another's decision."""

    def takes_long(*call):
        until_long = time.thread_time() + 5 * BRIEF
        while time.thread_time() < until_long:
            checkpoint()
        return filter_and_assume(*call)

    monkeypatch.setattr(extender, "filter_and_assume", takes_long)
    fresh.http.get("/livez")
    left = ExitStack()
    turn = fresh.server.pools.turn
    turn.acquire()
    with left, ThreadPoolExecutor(1) as other:
        left.callback(turn.release)
        call = other.submit(fresh.ask, "filter", spreading("probe"), NAMES)
        until(lambda: turn.waiting > 0, "it waits for its turn")
        assert fresh.http.get("/livez").status_code == 200
        assert not call.done()
        left.close()
        assert call.result(PATIENCE)["NodeNames"] == NAMES
