"""Errors over HTTP: the extender's, where its protocol has room for them, and those of pages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from google.protobuf.json_format import ParseDict
from google.rpc import code_pb2, status_pb2

from tests.access.callers import AccessFile
from tests.errors.error_status import ErrorStatus
from tests.http.extender_client import Scheduler, node, spreading
from tests.servers import served

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 1 << 20


def error_status(answer: httpx.Response, code: str) -> ErrorStatus:
    """What an answer tells, as the google.rpc.Status that it would be over gRPC."""
    body = answer.json()
    assert answer.headers["content-type"] == "application/json"
    status: dict[str, Any] = {
        "code": code_pb2.Code.Value(code),
        "message": body["Error"],
        "details": body["Details"],
    }
    found = ErrorStatus(ParseDict(status, status_pb2.Status()))
    assert ("retry-after" in answer.headers) == ("RetryInfo" in found.details)
    return found


@pytest.fixture(scope="module")
def scheduler() -> Iterator[Scheduler]:
    flags: dict[str, Any] = {"http": "127.0.0.1:0", "http_max_body_bytes": LIMIT}
    with served(**flags) as server, Scheduler(server) as scheduler:
        scheduler.write(node("n-a", zone="a"))
        yield scheduler


def args(**more: Any) -> bytes:
    return json.dumps({"Pod": spreading("x"), "NodeNames": ["n-a"]} | more).encode()


WRONG_POD = {"metadata": {"name": "x"}, "spec": {"tolerations": "none"}}

REFUSED = [
    ("filter", b"no JSON", 400, "INVALID_ARGUMENT", "INVALID_FIELDS", ""),
    ("prioritize", b"[]", 400, "INVALID_ARGUMENT", "INVALID_FIELDS", ""),
    ("filter", b"{}", 400, "INVALID_ARGUMENT", "INVALID_FIELDS", "Pod"),
    ("filter", args(NodeNames=5), 400, "INVALID_ARGUMENT", "INVALID_FIELDS", "NodeNames"),
    ("filter", args(NodeNames=None), 400, "INVALID_ARGUMENT", "INVALID_FIELDS", "NodeNames"),
    ("preempt", args(), 400, "INVALID_ARGUMENT", "INVALID_FIELDS", "NodeNameToMetaVictims"),
    ("prioritize", args(Pod=WRONG_POD), 400, "INVALID_ARGUMENT", "INVALID_FIELDS",
     "Pod.spec.tolerations"),
    ("filter?mode=x", args(), 400, "INVALID_ARGUMENT", "INVALID_FIELDS", "mode"),
    ("filter?other=x", args(), 400, "INVALID_ARGUMENT", "INVALID_FIELDS", "other"),
    ("nothing", args(), 404, "UNIMPLEMENTED", "METHOD_NOT_SERVED", ""),
    ("a/b/c", args(), 404, "UNIMPLEMENTED", "METHOD_NOT_SERVED", ""),
    ("nowhere/prioritize", args(), 404, "NOT_FOUND", "CLUSTER_NOT_FOUND", ""),
    ("filter", bytes(LIMIT + 1), 413, "RESOURCE_EXHAUSTED", "REQUEST_TOO_LARGE", ""),
]  # fmt: skip


@pytest.mark.parametrize(("verb", "body", "status", "code", "reason", "path"), REFUSED)
def test_refused_extender_call(scheduler, verb, body, status, code, reason, path):
    answer = scheduler.post(verb, body)
    assert answer.status_code == status, answer.text
    found = error_status(answer, code)
    found.check(reason)
    if path:
        assert path in dict(found.fields)


def test_filter_reports_errors_in_its_error_field(scheduler):
    answer = scheduler.post("nowhere/filter", args())
    assert answer.status_code == httpx.codes.OK
    assert "'nowhere' is not known" in answer.json()["Error"]


def test_extender_call_must_be_a_post(scheduler):
    answer = scheduler.http.get("/extender/v1/filter")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    error_status(answer, "UNIMPLEMENTED").check("METHOD_NOT_SERVED")


@pytest.mark.parametrize(("method", "path", "status"), [
    ("GET", "/nothing", 404), ("POST", "/metrics", 405), ("PUT", "/", 405)
])  # fmt: skip
def test_unknown_page(scheduler, method, path, status):
    answer = scheduler.http.request(method, path)
    assert answer.status_code == status
    error_status(answer, "UNIMPLEMENTED").check("METHOD_NOT_SERVED")


def test_http_caller_without_credentials_or_role(tmp_path):
    access = AccessFile(tmp_path / "access.yaml", elsewhere=["admin@elsewhere"])
    with (
        served(http="127.0.0.1:0", access_file=str(access)) as server,
        Scheduler(server) as scheduler,
    ):
        for method, path in (("GET", "/metrics"), ("POST", "/extender/v1/filter")):
            unauthenticated = scheduler.http.request(method, path)
            assert (unauthenticated.status_code, unauthenticated.headers["www-authenticate"]) == (
                401,
                "Bearer",
            )
            error_status(unauthenticated, "UNAUTHENTICATED").check("CREDENTIALS_MISSING")
            headers = {"authorization": access.bearer("elsewhere")[0][1]}
            known = scheduler.http.request(method, path, headers=headers)
            assert known.status_code == 403
            found = error_status(known, "PERMISSION_DENIED")
            found.check("ROLE_MISSING")
            assert found.metadata["role"] in ("read", "decide")


def test_rate_limited_http_caller():
    with (
        served(http="127.0.0.1:0", rate_limit=0.01, rate_burst=1) as server,
        Scheduler(server) as scheduler,
    ):
        scheduler.http.get("/metrics")
        answer = scheduler.http.get("/metrics")
        assert answer.status_code == 429
        error_status(answer, "RESOURCE_EXHAUSTED").check("RATE_LIMITED")


def test_full_queue(scheduler):
    with served(http="127.0.0.1:0") as server, Scheduler(server) as full:
        full.write(node("n-a", zone="a"))
        for name in ("state", "extender"):
            executor: Any = server.pools.executors[name]
            executor._queue.bound = executor._most = 0
        answer = full.post("preempt", args(NodeNameToMetaVictims={}))
        assert answer.status_code == 429
        error_status(answer, "RESOURCE_EXHAUSTED").check("QUEUE_FULL")
