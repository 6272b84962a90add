"""`topospread serve` as a process."""

from __future__ import annotations

import signal
import socket
import urllib.request

import pytest
import trustme

from tests.cli.processes import run, serving
from topospread_client import Client, Connection, Tls

NODE = {"kind": "Node", "metadata": {"name": "n"}}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_server_prints_its_addresses_and_ends_at_sigterm(number):
    with serving("--store", "memory:", "--http", "127.0.0.1:0") as (process, address):
        assert process.stdout is not None
        assert process.stdout.readline().startswith("metrics and health on http://127.0.0.1:")
        assert process.stdout.readline() == "store memory:\n"
        with Client(address) as client:
            assert client.get_server_info().store == "memory:"
        process.send_signal(number)
        assert process.wait(60) == 0


def test_metrics_and_health_are_served_over_http():
    with serving("--store", "memory:", "--http", "127.0.0.1:0") as (process, _):
        assert process.stdout is not None
        http = process.stdout.readline().split()[-1]
        for path in ("/readyz", "/livez", "/metrics"):
            with urllib.request.urlopen(f"{http}{path}", timeout=60) as answer:
                assert answer.status == 200


def test_the_state_outlives_the_server(tmp_path):
    store = f"sqlite:///{tmp_path}/state.db"
    for expected in (False, True):
        with (
            serving("--store", store, "--http", "off") as (process, address),
            Client(address) as client,
        ):
            known = [cluster.name for cluster in client.list_clusters()]
            assert ("default" in known) is expected
            client.apply_objects([NODE])
            process.terminate()
            assert process.wait(60) == 0


def test_an_option_goes_before_a_variable():
    variables = {"TOPOSPREAD_STORE": "memory:", "TOPOSPREAD_HTTP": "127.0.0.1:0"}
    with serving("--http", "off", **variables) as (process, _):
        assert process.stdout is not None
        assert process.stdout.readline() == "store memory:\n"


def test_tls_is_served_and_client_certificates_are_asked_for(tmp_path):
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    for name in ("127.0.0.1", "caller"):
        issued = ca.issue_cert(f"{name}" if name[0].isdigit() else f"{name}@example.org")
        issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / f"{name}.pem")
    own = str(tmp_path / "127.0.0.1.pem")
    ca_file, caller = str(tmp_path / "ca.pem"), str(tmp_path / "caller.pem")
    flags = ("--tls-cert", own, "--tls-key", own, "--client-ca", ca_file)
    with serving("--store", "memory:", "--http", "off", *flags) as (_, address):
        with Client(Connection(address, Tls(ca_file, caller, caller))) as client:
            assert client.get_server_info().version
        tls = ("--tls-ca", ca_file, "--tls-cert", caller, "--tls-key", caller)
        assert run("status", "--address", address, *tls).returncode == 0
        refused = run("status", "--address", address, "--tls-ca", ca_file)
        assert refused.returncode == 3
        assert "asks for client certificates --tls-cert and --tls-key" in refused.stderr


MISTAKES = {
    "open address": (("--listen", "0.0.0.0:0"), "--listen: 0.0.0.0:0 can be reached from other"),
    "half a pair": (("--tls-cert", "x.pem"), "--tls-cert: give --tls-key as well"),
    "port": (("--listen", "127.0.0.1:99999"), "has a port above 65535"),
    "number": (("--decision-queue", "many"), "--decision-queue: 'many' is not a whole number"),
    "store": (("--store", "mysql://x"), "mysql"),
    "several at once": (
        ("--decision-queue", "0", "--shutdown-grace-period", "soon"),
        "--shutdown-grace-period: 'soon'",
    ),
    "file": (("--config", "/nonexistent.yaml"), "/nonexistent.yaml: cannot be read"),
    "replicas of a file": (("--wait-replicas", "1"), "--wait-replicas: only Redis has replicas"),
    "certificate": (("--tls-cert", "/no.pem", "--tls-key", "/no.pem"), "/no.pem"),
}


@pytest.mark.parametrize(("flags", "complaint"), MISTAKES.values(), ids=MISTAKES)
def test_invalid_settings_are_reported(flags, complaint):
    stores = () if "--store" in flags else ("--store", "memory:")
    ended = run("serve", "--listen", "127.0.0.1:0", "--http", "off", *stores, *flags)
    assert ended.returncode == 2
    assert complaint in ended.stderr
    assert all(line.startswith("topospread: ") for line in ended.stderr.splitlines())
    assert "Traceback" not in ended.stderr


def test_a_taken_port_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = run("serve", "--listen", address, "--http", "off", "--store", "memory:")
    assert ended.returncode == 2
    assert address in ended.stderr
    assert "Traceback" not in ended.stderr


def test_unreachable_store_is_reported():
    ended = run("serve", "--http", "off", "--store", "redis://me:secret@127.0.0.1:1/2")
    assert ended.returncode == 3
    assert ended.stderr.startswith(
        "topospread: store redis://127.0.0.1:1/2: Redis cannot be reached"
    )
    assert "check --store" in ended.stderr
    assert "secret" not in ended.stderr
    assert "Traceback" not in ended.stderr
