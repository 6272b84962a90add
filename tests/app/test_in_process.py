"""A server within a command: nobody else can call it, and it leaves nothing behind."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest

from tests.servers import node
from topospread.app import in_process
from topospread.codec.stored import stored
from topospread.errors import ConfigError
from topospread_client import Client, Kind


def test_a_server_within_a_command_can_be_called_by_its_user_only(monkeypatch):
    bound = []
    bind = socket.socket.bind

    def noted(self, address):
        bound.append(address)
        bind(self, address)

    monkeypatch.setattr(socket.socket, "bind", noted)
    with in_process.serve_objects("default", [stored(node("a", "zone-a"))]) as target:
        scheme, path = target.split(":")
        folder = Path(path).parent
        assert (scheme, Path(path).is_socket(), bound) == ("unix", True, [])
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        with Client(target) as client:
            assert [each.node.metadata.name for each in client.list_objects(Kind.NODE)] == ["a"]
    assert not folder.exists()


def test_objects_are_not_read_for_a_configuration_that_cannot_be_used(tmp_path):
    (tmp_path / "config.yaml").write_text("kind: Other\n")
    read = iter([stored(node("a", "zone-a"))])
    with (
        pytest.raises(ConfigError),
        in_process.serve_objects("default", read, str(tmp_path / "config.yaml")),
    ):
        raise AssertionError("it is not served")
    assert len(list(read)) == 1
