"""`topospread token new`, and a token on its way from the environment to the server."""

from __future__ import annotations

import json
import stat

import pytest
import yaml

from tests.servers import served
from topospread.access.authentication import digest
from topospread.access.file import read_access


def new(command, file, *more):
    return command("token", "new", "--file", file, "--name", "somebody", *more)


def test_the_token_is_printed_once_and_only_its_hash_is_kept(bare, tmp_path):
    file = tmp_path / "access.yaml"
    said = new(bare, file, "--role", "decide", "--role", "write@prod", "--expires-in", "12h")
    token = said.out.strip()
    assert said.code == 0
    assert token not in said.err
    assert token not in file.read_text()
    (caller,) = read_access(file.read_text(), "it").tokens.values()
    assert caller.name == "somebody"
    assert caller.credential == digest(token)
    assert caller.expires < float("inf")
    assert not stat.S_IMODE(file.stat().st_mode) & 0o007


WRITTEN = [
    "tokens:\n{old}",
    "# whose\ntokens: # ours\n  # first\n{indented}\n# end\n",
    "tokens: []\n",
    "tokens:\n",
    "certificates:\n- {{commonName: x, roles: [read]}}\n",
    "tokens: [{flow}]\n",
]
OLD = {"id": "0" * 16, "name": "old", "sha256": "ab" * 32, "roles": ["read"]}


@pytest.mark.parametrize("text", WRITTEN)
def test_token_is_added_to_any_form_of_list(bare, tmp_path, text):
    file = tmp_path / "access.yaml"
    old = yaml.safe_dump([OLD])
    indented = "\n".join(f"  {line}" for line in old.splitlines())
    body = text.format(old=old, indented=indented, flow=json.dumps(OLD))
    file.write_text(f"apiVersion: topospread.io/v1\nkind: TopospreadAccess\n{body}")
    file.chmod(0o604)
    before = read_access(file.read_text(), "it")
    assert new(bare, file, "--role", "read").code == 0
    after = read_access(file.read_text(), "it")
    assert len(after.tokens) == len(before.tokens) + 1
    assert before.tokens.items() <= after.tokens.items()
    assert after.common == before.common
    assert stat.S_IMODE(file.stat().st_mode) == 0o604
    if "# whose" in text:
        assert "# whose" in file.read_text()
        assert "# end" in file.read_text()
    assert [each.name for each in tmp_path.iterdir()] == ["access.yaml"]


@pytest.mark.parametrize("content", ["a: [", "kind: Other\n", "tokens: 1\n", "\xff"])
def test_invalid_access_file_is_not_changed(bare, tmp_path, content):
    file = tmp_path / "access.yaml"
    file.write_bytes(content.encode("latin-1"))
    said = new(bare, file, "--role", "read")
    assert said.code == 2
    assert said.out == ""
    assert file.read_bytes() == content.encode("latin-1")


def test_token_is_sent_from_variable_or_file(bare, tmp_path, monkeypatch):
    access = tmp_path / "access.yaml"
    token = new(bare, access, "--role", "read").out.strip()
    file = tmp_path / "token"
    file.write_text(token)
    with served(access_file=str(access)) as server:
        status = ("status", "--address", server.address)
        refused = bare(*status)
        assert refused.code == 2
        assert "a valid token or client certificate is needed" in refused.err
        assert bare(*status, "--token-file", file).code == 0
        assert bare("--token-file", file, *status).code == 0
        monkeypatch.setenv("TOPOSPREAD_TOKEN", token)
        assert bare(*status).code == 0
        lacks = bare("delete", "node", "x", "--address", server.address)
        assert lacks.code == 2
        assert "the role write is missing" in lacks.err
        monkeypatch.setenv("TOPOSPREAD_TOKEN", f"{token}x")
        assert bare(*status).code == 2
        # What a file says goes before the variable.
        assert bare(*status, "--token-file", file).code == 0


def test_config_check_reads_the_access_file(bare, tmp_path, monkeypatch):
    access = tmp_path / "access.yaml"
    monkeypatch.setenv("TOPOSPREAD_ACCESS_FILE", str(access))
    assert "access.yaml: cannot be read" in bare("config", "check").err
    access.write_text("tokens: 1")
    said = bare("config", "check")
    assert said.code == 2
    assert "tokens: not a list" in said.err
    access.unlink()
    assert new(bare, access, "--role", "read").code == 0
    assert bare("config", "check").code == 0
