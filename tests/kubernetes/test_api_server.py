"""The API server over TLS, with client certificates and with programs that make tokens."""

from __future__ import annotations

import base64
import json
import os
import ssl
import sys
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from kubernetes.config import incluster_config

from tests.apiserver.server import ApiServer, Fault
from tests.cli.processes import run
from tests.kubernetes.syncing import kubeconfig, metric, pod, small_cluster
from tests.kubernetes.test_cluster_sync import of
from tests.servers import served
from tests.waiting import until
from topospread_client import Client

if TYPE_CHECKING:
    from pathlib import Path


def data(*blobs: trustme.Blob) -> str:
    return base64.b64encode(b"".join(blob.bytes() for blob in blobs)).decode()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls(authority: trustme.CA) -> ssl.SSLContext:
    """Asks for certificates, as API servers do whose users have them."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def user(authority: trustme.CA) -> dict[str, Any]:
    mine = authority.issue_cert("feeder@example.org")
    return {
        "client-certificate-data": data(*mine.cert_chain_pems),
        "client-key-data": data(mine.private_key_pem),
    }


def test_a_sync_over_tls_survives_breaks(
    tmp_path: Path, authority: trustme.CA, tls: ssl.SSLContext
) -> None:
    objects = small_cluster()
    trusted = {"certificate-authority-data": data(authority.cert_pem)}
    with ApiServer(objects, tls=tls) as api:
        config = kubeconfig(tmp_path, api.url, cluster=trusted, user=user(authority))
        with (
            served(sync=True, sync_kubeconfig=config) as server,
            Client(server.address) as client,
        ):
            until(lambda: server.ready()[0], "all kinds listed")
            until(lambda: api.watches("pods") == 1, "a watch")
            api.faults.append(Fault(of("pods", watch=False), cut_after=100))
            api.hang_up()
            objects.put(pod("web-2", "b1"))
            until(lambda: len(list(client.list_objects("POD"))) == 3, "a change across the breaks")
            assert not api.faults


def test_an_untrusted_server_gets_no_credentials(
    tmp_path: Path, authority: trustme.CA, tls: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    other = {"certificate-authority-data": data(trustme.CA().cert_pem)}
    with ApiServer(small_cluster(), tls=tls) as api:
        config = kubeconfig(tmp_path, api.url, cluster=other, user=user(authority))
        with served(sync=True, sync_kubeconfig=config) as server:
            until(lambda: metric(server, "topospread_sync_failures_total", kind="Node") > 0, "a no")
        assert api.asked == []
    assert "CERTIFICATE_VERIFY_FAILED" in caplog.text


def test_an_unverified_server_is_one_line_of_the_log(
    tmp_path: Path,
    tls: ssl.SSLContext,
    authority: trustme.CA,
    caplog: pytest.LogCaptureFixture,
    recwarn: pytest.WarningsRecorder,
) -> None:
    unverified = {"insecure-skip-tls-verify": True}
    with ApiServer(small_cluster(), tls=tls) as api:
        config = kubeconfig(tmp_path, api.url, cluster=unverified, user=user(authority))
        with served(sync=True, sync_kubeconfig=config) as server:
            until(lambda: server.ready()[0], "all kinds listed")
    assert caplog.text.count("its certificate is not verified") == 1
    assert [each for each in recwarn if "Unverified HTTPS" in str(each.message)] == []


def test_a_token_is_made_by_a_program(tmp_path: Path) -> None:
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "made-up"},
    }
    program = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "interactiveMode": "Never",
        "command": sys.executable,
        "args": ["-c", f"print({json.dumps(json.dumps(credential))})"],
    }
    with ApiServer(small_cluster(), token="made-up") as api:
        config = kubeconfig(tmp_path, api.url, user={"exec": program})
        with served(sync=True, sync_kubeconfig=config) as server:
            until(lambda: server.ready()[0], "all kinds listed")


def test_a_pod_uses_its_service_account(
    tmp_path: Path, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    (tmp_path / "token").write_text("of-the-pod")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    with ApiServer(small_cluster(), token="of-the-pod", tls=context) as api:
        monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
        monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", api.url.rpartition(":")[2])
        # As in a container: a user whom nobody knows, without a home.
        monkeypatch.delenv("HOME")
        monkeypatch.setattr(os, "getuid", lambda: 65532)
        monkeypatch.delenv("KUBECONFIG", raising=False)
        with served(sync=True) as server:
            until(lambda: server.ready()[0], "all kinds listed")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "there is no such file"),
        ("not: [a kubeconfig", "cannot be used"),
        ("apiVersion: v1\nkind: Config\n", "cannot be used"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_bad_input(
    tmp_path: Path, content: str | None, says: str
) -> None:
    path = tmp_path / "no-such-file"
    if content is not None:
        path.write_text(content)
    said = run("serve", "--store", "memory:", "--sync", "--sync-kubeconfig", str(path))
    assert said.returncode == 2
    assert f"kubeconfig {path}" in said.stderr
    assert says in said.stderr
    assert "Traceback" not in said.stderr


def test_without_a_cluster_it_says_what_to_do(tmp_path: Path) -> None:
    said = run("serve", "--store", "memory:", "--sync", HOME=str(tmp_path), KUBECONFIG="")
    assert said.returncode == 2
    assert "name one with --kubeconfig (topospread serve: --sync-kubeconfig)" in said.stderr


def test_a_lease_that_no_store_gives_is_a_wrong_setting() -> None:
    said = run("serve", "--store", "memory:", "--sync", "--sync-lease-duration", "2h")
    assert said.returncode == 2
    assert "--sync-lease-duration: 7200s is more than 3600s (1h)" in said.stderr
