"""Lists as kubectl prints them are read in pieces, and mean what they always mean."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from typing import Any

import pytest
import yaml

from topospread.cli import manifest_files, printed_lists, state_objects
from topospread.cli.errors import BadInput
from topospread.cli.printed_lists import NotAsPrintedError, is_printed_list, printed_items

TEXT = "ends like an item:\n        },\n        {\n\\"


def node(number, **more):
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"annotations": {"text": TEXT}, "name": f"n{number}", **more},
    }


def printed(*items, **metadata):
    """A List as kubectl prints it."""
    content = {"apiVersion": "v1", "items": list(items), "kind": "List", "metadata": metadata}
    return json.dumps(content, indent=4) + "\n"


def written(tmp_path, form, *items, **metadata):
    """A file with a List as kubectl prints it."""
    path = tmp_path / f"dump.{form}"
    text = printed(*items, **metadata)
    path.write_text(text if form == "json" else yaml.dump(json.loads(text)))
    return path


def streamed(path):
    parts = manifest_files.stream(str(path), lambda source, read, size: None)
    return [each for part in parts for each in manifest_files.manifests_of(part)]


def small_blocks(monkeypatch, size):
    for name in ("_JSON", "_YAML"):
        form = replace(getattr(printed_lists, name), block=size)
        monkeypatch.setattr(printed_lists, name, form)


@pytest.mark.parametrize("form", ["json", "yaml"])
@pytest.mark.parametrize("block", [256, 257, 300, 4 << 20])
def test_items_are_those_of_the_whole_text_each_with_its_line(tmp_path, monkeypatch, form, block):
    small_blocks(monkeypatch, block)
    monkeypatch.setattr(manifest_files, "_BEGIN", 100)
    path = written(tmp_path, form, *map(node, range(20)), resourceVersion="")
    found = streamed(path)
    assert [each.content for each in found] == [node(number) for number in range(20)]
    lines = path.read_text().splitlines()
    for each in found:
        line = int(each.source.rpartition(":")[2])
        assert lines[line - 1] in {"        {", "- apiVersion: v1"}
        assert sum(each.content["metadata"]["name"] in text for text in lines[line : line + 8]) == 1


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_items_are_read_before_the_rest_of_the_file(tmp_path, monkeypatch, form):
    small_blocks(monkeypatch, 4096)
    content = written(tmp_path, form, *map(node, range(2000))).read_bytes()
    file, taken = io.BytesIO(content), list[int]()
    begin = file.read(4096)
    assert is_printed_list(begin)
    pieces = printed_items(begin, file, "dump", taken.append)
    count = 0
    while count < 1000:
        count += len(list(next(pieces).read()))
    assert sum(taken) < 0.6 * len(content)
    assert count + sum(len(list(each.read())) for each in pieces) == 2000


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_several_processes_read_what_one_reads(tmp_path, monkeypatch, form, bare):
    items = [node(number) for number in range(300)]
    items[250]["kind"] = "ConfigMap"
    path = written(tmp_path, form, *items)
    one = bare("get", "nodes", "--from", path, "-o", "name")
    small_blocks(monkeypatch, 4096)
    monkeypatch.setattr(state_objects, "ALONE", 1)
    monkeypatch.setattr(state_objects, "_processors", lambda: 2)
    used = []
    in_processes = state_objects._in_processes

    def noted(parts, processes):
        used.append(processes)
        return in_processes(parts, processes)

    monkeypatch.setattr(state_objects, "_in_processes", noted)
    several = bare("get", "nodes", "--from", path, "-o", "name")
    assert (len(several.lines), several.out, several.err) == (299, one.out, one.err)
    assert used == [2]
    items[299]["metadata"]["name"] = "a/b"
    path = written(tmp_path, form, *items)
    said = bare("get", "nodes", "--from", path)
    assert (said.code, "Node a/b: metadata.name" in said.err) == (2, True)


class Ending:
    """A part that ends the process which gets it."""

    def __reduce__(self):
        return os._exit, (1,)


def test_a_process_that_ends_early_is_an_error(monkeypatch):
    monkeypatch.setattr(state_objects, "ALONE", 0)
    monkeypatch.setattr(state_objects, "_processors", lambda: 2)
    parts: list[Any] = [Ending()]
    with pytest.raises(BadInput, match="a process that was reading has ended"):
        state_objects.read_objects(parts)


def test_a_list_that_goes_on_in_another_way_is_read_as_any_json(bare, tmp_path):
    path = tmp_path / "dump.json"
    inner = json.dumps(node(1), indent=4).replace("\n", "\n    ")
    other = printed(node(0)).replace("\n        }\n    ]", f"\n        }},\n    {inner}\n    ]")
    path.write_text(other)
    with pytest.raises(NotAsPrintedError):
        streamed(path)
    said = bare("get", "nodes", "--from", path, "-o", "name")
    assert (said.code, said.lines) == (0, ["node/n0", "node/n1"])


def test_several_lists_one_after_the_other_are_all_read(bare, tmp_path):
    path = tmp_path / "dump.json"
    path.write_text(printed(node(0)) + printed(node(1)))
    assert bare("get", "nodes", "--from", path, "-o", "name").lines == ["node/n0", "node/n1"]


@pytest.mark.parametrize("left", [0.4, 0.99])
def test_a_list_that_was_cut_is_refused(bare, tmp_path, left):
    path = tmp_path / "dump.json"
    text = printed(*map(node, range(30)))
    path.write_text(text[: int(len(text) * left)])
    said = bare("get", "nodes", "--from", path)
    assert (said.code, said.out) == (2, "")
    assert f"{path}:" in said.err
    piped = bare("get", "nodes", "--from", "-", stdin=path.read_text())
    assert (piped.code, "does not go on like one" in piped.err) == (2, True)


def test_items_that_cannot_be_stored_are_named_by_their_line(bare, tmp_path):
    path = tmp_path / "dump.json"
    path.write_text(printed(node(0), node(1, name="a/b")))
    said = bare("get", "nodes", "--from", path)
    line = path.read_text().splitlines().index("        {", 4) + 1
    assert said.err.startswith(f"topospread: {path}:{line}: Node a/b: metadata.name")


def test_a_list_above_the_limit_is_refused_before_it_is_read(monkeypatch, tmp_path):
    path = tmp_path / "dump.json"
    path.write_text(printed(node(0)))
    monkeypatch.setattr(manifest_files, "MAX_STREAMED_BYTES", path.stat().st_size - 1)
    monkeypatch.setattr(manifest_files, "printed_items", None)
    with pytest.raises(BadInput, match="a cluster of this size is for a server"):
        streamed(path)
