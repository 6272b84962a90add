"""What `topospread explain` asks of a server: no more than it needs."""

from __future__ import annotations

import pytest

from tests.cli.transcript import FILES
from topospread.cli.commands import explain
from topospread_client import Client
from topospread_proto.v1.common_pb2 import KIND_POD


@pytest.fixture
def asked(monkeypatch):
    """The calls that clients make: their methods and requests."""
    calls = []
    real = Client.call

    def counted(self, method, request, **options):
        calls.append((method, request))
        return real(self, method, request, **options)

    monkeypatch.setattr(Client, "call", counted)
    return calls


def test_one_pod_of_a_template_is_explained_and_no_more_than_the_limit(loaded, asked, monkeypatch):
    assert loaded("apply", "-f", FILES / "waiting.yaml").code == 0
    loaded("explain", "--pending")
    assert [method for method, _ in asked].count("ExplainPod") == 2
    monkeypatch.setattr(explain, "MAX_EXPLAINED", 1)
    said = loaded("explain", "--pending")
    assert [method for method, _ in asked].count("ExplainPod") == 3
    assert "not explained: 1" in said.lines


def test_pods_of_a_namespace_are_listed_once_for_all_names(loaded, asked):
    assert loaded("apply", "-f", FILES / "workloads.yaml").code == 0
    names = ("deploy/shop/web", "sts/shop/db", "shop/agent", "shop/missing", "jobs/none/x")
    loaded("explain", *names)
    listed = [
        (request.kind, request.namespace) for method, request in asked if method == "ListObjects"
    ]
    assert sorted(namespace for kind, namespace in listed if kind == KIND_POD) == ["none", "shop"]
    assert len(set(listed)) == len(listed)
