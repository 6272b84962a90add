from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from tests.telemetry.expositions import value
from tests.waiting import PATIENCE
from topospread.calls.status import UNEXPECTED
from topospread.errors import ConfigError
from topospread.http.app import make_app
from topospread.http.server import HttpServer
from topospread.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from starlette.requests import Request

LIMIT = 1000


class Served:
    """A server with what it is told about itself."""

    def __init__(self):
        self.live = (True, ())
        self.ready = (True, ())
        self.metrics = Metrics("1.2.3")
        self.began = threading.Event()
        self.go_on = threading.Event()

    def app(self):
        async def echo(request: Request):
            return PlainTextResponse(await request.body())

        def slow(_: Request):
            self.began.set()
            assert self.go_on.wait(timeout=PATIENCE)
            return PlainTextResponse("done")

        def fail(_: Request):
            raise RuntimeError("redis://user:hunter2@cache")

        return make_app(
            version="1.2.3",
            metrics=self.metrics.expose,
            live=lambda: self.live,
            ready=lambda: self.ready,
            max_body_bytes=LIMIT,
            routes=[
                Route("/echo", echo, methods=["POST"]),
                Route("/slow", slow),
                Route("/fail", fail),
            ],
        )


@pytest.fixture
def served():
    return Served()


@pytest.fixture
def server(served):
    server = HttpServer(served.app(), "127.0.0.1", 0)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def client(server):
    with httpx.Client(
        base_url=f"http://127.0.0.1:{server.port}", trust_env=False, timeout=PATIENCE
    ) as client:
        yield client


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_health_pages_show_the_reasons(client, served, path):
    answer = client.get(path)
    assert (answer.status_code, answer.text) == (200, "ok\n")
    setattr(served, path[1:-1], (False, ["default: not loaded", "prod: stale"]))
    answer = client.get(path)
    assert (answer.status_code, answer.text) == (503, "default: not loaded\nprod: stale\n")


def test_liveness_is_not_readiness(client, served):
    served.ready = (False, ["loading"])
    assert client.get("/livez").status_code == 200


def test_head_works_for_probes_that_use_it(client):
    assert client.head("/readyz").status_code == 200


def test_metrics_are_exposed_in_the_format_asked_for(client, served):
    served.metrics.call("DecisionService/EvaluatePod").observe("OK", 0.001)
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    labels = {"method": "DecisionService/EvaluatePod", "code": "OK"}
    assert value(answer.content, "topospread_calls_total", **labels) == 1
    answer = client.get("/metrics", headers={"accept": "application/openmetrics-text"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


def test_the_page_names_the_version_and_leads_on(client):
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "topospread 1.2.3" in page.text
    for path in ("/metrics", "/livez", "/readyz"):
        assert f'href="{path}"' in page.text
        assert client.get(path).status_code == 200


def test_no_header_names_the_software(client):
    for path in ("/", "/metrics", "/nowhere"):
        assert "server" not in client.get(path).headers


@pytest.mark.parametrize(
    ("method", "path", "code"), [("GET", "/nowhere", 404), ("POST", "/metrics", 405)]
)
def test_unknown_paths_and_methods(client, method, path, code):
    assert client.request(method, path).status_code == code


def test_an_unexpected_failure_has_no_details(client):
    answer = client.get("/fail")
    assert answer.status_code == 500
    assert answer.json()["Error"] == UNEXPECTED
    assert "ZeroDivision" not in answer.text


def chunks(size):
    for _ in range(size // 100):
        yield b"x" * 100


@pytest.mark.parametrize("body", [lambda size: b"x" * size, chunks])
def test_a_body_is_bounded_whether_its_length_is_said_or_not(client, body):
    assert client.post("/echo", content=body(LIMIT)).status_code == 200
    assert client.post("/echo", content=body(LIMIT + 100)).status_code == 413
    # The server is none the worse for it.
    assert client.get("/livez").status_code == 200


def test_a_body_that_claims_too_much_is_not_waited_for(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as raw:
        raw.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n\r\n")
        assert b" 413 " in raw.recv(100)


def call_until_turned_away(url):
    while True:
        try:
            httpx.get(url, trust_env=False, timeout=PATIENCE)
        except httpx.TransportError:
            return


def test_a_running_request_ends_before_the_server_does(served):
    server = HttpServer(served.app(), "127.0.0.1", 0)
    server.start()
    url = f"http://127.0.0.1:{server.port}"
    answers = []
    caller = threading.Thread(
        target=lambda: answers.append(
            httpx.get(f"{url}/slow", trust_env=False, timeout=PATIENCE).text
        )
    )
    caller.start()
    assert served.began.wait(timeout=PATIENCE)
    stopper = threading.Thread(target=lambda: server.stop(grace=30))
    stopper.start()
    # New callers are turned away while the running one goes on.
    call_until_turned_away(f"{url}/livez")
    served.go_on.set()
    caller.join()
    stopper.join()
    assert answers == ["done"]


def test_a_request_without_end_does_not_keep_the_server(served):
    server = HttpServer(served.app(), "127.0.0.1", 0)
    server.start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as raw:
        raw.sendall(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n")
        httpx.get(f"http://127.0.0.1:{server.port}/livez", trust_env=False, timeout=PATIENCE)
        server.stop(grace=1)
    assert not [thread for thread in threading.enumerate() if thread.name == "http"]


def test_a_server_that_was_never_started_can_be_stopped(served):
    server = HttpServer(served.app(), "127.0.0.1", 0)
    port = server.port
    server.stop()
    with socket.socket() as again:
        again.bind(("127.0.0.1", port))


def test_a_taken_port_is_named(served, server):
    with pytest.raises(ConfigError, match=f"127.0.0.1:{server.port} cannot be used"):
        HttpServer(served.app(), "127.0.0.1", server.port)


def test_an_address_of_another_host_is_named(served):
    with pytest.raises(ConfigError, match="cannot be used"):
        HttpServer(served.app(), "192.0.2.1", 0)


def test_ipv6(served):
    try:
        server = HttpServer(served.app(), "::1", 0)
    except ConfigError:
        pytest.skip("this machine has no IPv6")
    server.start()
    assert (
        httpx.get(f"http://[::1]:{server.port}/livez", trust_env=False, timeout=PATIENCE).text
        == "ok\n"
    )
    server.stop()
