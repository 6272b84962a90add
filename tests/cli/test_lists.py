"""Lists are read item by item, in any layout, and what is too large is refused before."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from typing import Any

import pytest
import yaml

from topospread.cli import json_values, manifest_files
from topospread.cli.errors import BadInput

TEXT = "ends like an item:\n        },\n        {\n\\ ä"


def node(number, **more):
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"annotations": {"text": TEXT}, "name": f"n{number}", **more},
    }


def listed(*items, **metadata):
    return {"apiVersion": "v1", "items": list(items), "kind": "List", "metadata": metadata}


LAYOUTS: Any = {
    "as kubectl prints JSON": lambda content: json.dumps(content, indent=4) + "\n",
    "compact JSON": lambda content: json.dumps(content, separators=(",", ":")),
    "a line an item": lambda content: json.dumps(content).replace('{"apiVersion', '\n{"apiVersion'),
    "as kubectl prints YAML": yaml.dump,
    "indented YAML": lambda content: yaml.dump(content, indent=6, sort_keys=False),
}


def read(path):
    return list(manifest_files.stream([str(path)], lambda source, read, size: None))


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("block", [64, 65, 67, 4096])
def test_items_are_those_of_the_whole_text_each_with_its_line(tmp_path, monkeypatch, layout, block):
    monkeypatch.setattr(json_values, "BLOCK", block)
    monkeypatch.setattr(manifest_files, "_BEGIN", 100)
    path = tmp_path / "dump"
    path.write_text(layout(listed(*map(node, range(20)), resourceVersion="")))
    found = read(path)
    assert [each.content for each in found] == [node(number) for number in range(20)]
    lines = path.read_text().splitlines()
    for number, each in enumerate(found):
        line = int(each.source.rpartition(":")[2])
        shown = next(at for at, text in enumerate(lines, 1) if f"n{number}" in text)
        assert line <= shown <= line + 8


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_items_are_read_before_the_rest_of_the_file(tmp_path, monkeypatch, layout):
    monkeypatch.setattr(json_values, "BLOCK", 4096)
    path = tmp_path / "dump"
    path.write_text(layout(listed(*map(node, range(2000)))))
    at = 0

    def progress(source, read, size):
        nonlocal at
        at = read

    found = manifest_files.stream([str(path)], progress)
    for _ in range(1000):
        next(found)
    assert at < 0.6 * path.stat().st_size
    assert 1000 + sum(1 for _ in found) == 2000


def test_typed_lists_give_their_items_a_kind(tmp_path, monkeypatch):
    monkeypatch.setattr(manifest_files, "_BEGIN", 100)
    item = {"metadata": {"name": "n0"}}
    before = {"kind": "NodeList", "apiVersion": "v1", "items": [item]}
    behind = dict(reversed(before.items()))
    for content in (before, behind):
        path = tmp_path / "nodes.json"
        path.write_text(json.dumps(content, indent=4))
        (found,) = read(path)
        assert found.content == {"apiVersion": "v1", "kind": "Node", **item}


@pytest.mark.parametrize("name", LAYOUTS)
def test_several_lists_one_after_the_other_are_all_read(bare, tmp_path, name):
    path, layout = tmp_path / "dump", LAYOUTS[name]
    between = "\n---\n" if "YAML" in name else "\n"
    path.write_text(between.join(layout(listed(node(number))) for number in range(3)))
    said = bare("get", "nodes", "--from", path, "-o", "name")
    assert said.lines == ["node/n0", "node/n1", "node/n2"]


def test_the_mark_of_an_end_is_read_behind_json(bare):
    text = LAYOUTS["as kubectl prints JSON"](listed(node(0))) + "...\n"
    assert bare("get", "nodes", "--from", "-", "-o", "name", stdin=text).lines == ["node/n0"]


@pytest.mark.parametrize("layout", list(LAYOUTS.values())[:3], ids=list(LAYOUTS)[:3])
@pytest.mark.parametrize("left", [0.4, 0.99])
def test_a_list_that_was_cut_is_refused(bare, tmp_path, layout, left):
    path = tmp_path / "dump.json"
    text = layout(listed(*map(node, range(300))))
    path.write_text(text[: int(len(text) * left)])
    said = bare("get", "nodes", "--from", path)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"topospread: {path}:")
    piped = bare("get", "nodes", "--from", "-", stdin=path.read_text())
    assert (piped.code, ": not JSON: " in piped.err) == (2, True)
    assert piped.err.endswith(": it ends too early\n")


def test_a_key_that_is_given_twice_is_refused(bare, tmp_path):
    text = json.dumps(listed(node(0)), indent=4)
    for twice in (
        text.replace('"kind": "List"', '"kind": "List", "kind": "List"'),
        text.replace('"kind": "Node"', '"kind": "Node", "kind": "Node"'),
    ):
        said = bare("get", "nodes", "--from", "-", stdin=twice)
        assert (said.code, "the key 'kind' is given twice" in said.err) == (2, True)


def test_an_endless_value_is_refused_before_all_of_it_is_read(monkeypatch):
    monkeypatch.setattr(json_values, "MAX_VALUE", 1 << 20)
    begin, read = b'{"kind": "List", "items": [{"a": "', 0

    class Endless:
        def read(self, size=-1, /):
            nonlocal read
            read += size
            return begin if read == size else b"x" * size

    with pytest.raises(BadInput, match="not JSON: Unterminated string"):
        list(json_values.json_parts(Endless(), "endless"))
    assert read < 4 << 20


def test_items_that_cannot_be_stored_are_named_by_their_line(bare, tmp_path):
    path = tmp_path / "dump.json"
    path.write_text(json.dumps(listed(node(0), node(1, name="a/b")), indent=4))
    said = bare("get", "nodes", "--from", path)
    line = path.read_text().splitlines().index("        {", 4) + 1
    assert said.err.startswith(f"topospread: {path}:{line}: Node a/b: metadata.name")


def test_a_list_above_the_limit_is_refused_before_it_is_read(monkeypatch, tmp_path):
    path = tmp_path / "dump.json"
    path.write_text(json.dumps(listed(node(0))))
    monkeypatch.setattr(manifest_files, "MAX_STREAMED_BYTES", path.stat().st_size - 1)
    monkeypatch.setattr(manifest_files, "_CountedRead", None)
    with pytest.raises(BadInput, match="a cluster of this size is for a server"):
        read(path)


def test_the_limit_is_that_of_all_files_together(bare, monkeypatch, tmp_path):
    path, other = tmp_path / "dump.json", tmp_path / "other.json"
    path.write_text(json.dumps(listed(node(0))))
    other.write_text(json.dumps(listed(node(1))))
    monkeypatch.setattr(manifest_files, "MAX_STREAMED_BYTES", path.stat().st_size)
    assert bare("get", "nodes", "--from", path).code == 0
    said = bare("get", "nodes", "--from", path, "--from", other)
    assert (said.code, f"{other}: too much to read at once" in said.err) == (2, True)


GIB = 1 << 30
MEMORY = 1 << 31
"""Bytes of address space: what a verb needs by itself, and far less than a GiB of objects."""

SAID = "too much to read at once: at most 512 MiB of JSON, or 64 MiB of YAML"


SMALL = [
    sys.executable,
    "-c",
    f"""\
import resource
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))
from topospread.cli.main import main
main()
""",
]
"""The command, with so much memory."""


@pytest.mark.parametrize("begin", [b"", b"kind: List\n", b'{"kind":"List","items":['])
def test_file_over_the_limit_is_refused(tmp_path, begin):
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.write(begin)
        file.truncate(GIB)
    ended = subprocess.run(
        [*SMALL, "apply", "-f", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"topospread: {path}: {SAID}")
    assert ended.stderr.count("\n") == 1


def test_pipe_over_the_limit_is_refused():
    sent = 0
    with subprocess.Popen(
        [*SMALL, "apply", "-f", "-"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        piece = b"kind: Pod\n---\n" * 100_000
        with suppress(BrokenPipeError):
            while sent < GIB:
                sent += process.stdin.write(piece)
        with suppress(BrokenPipeError):
            process.stdin.close()
        said = process.stderr.read().decode()
    assert process.returncode == 2
    assert said.startswith(f"topospread: standard input: {SAID}")
    assert sent < GIB // 4
