"""Lists in JSON as kubectl prints them are read item by item, and mean what they always mean."""

from __future__ import annotations

import io
import json
from itertools import islice

import pytest

from topospread.cli import manifest_files, printed_lists
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


def streamed(path):
    return list(manifest_files.stream(str(path), lambda source, read, size: None))


def test_items_are_those_of_the_whole_text_each_with_its_line(tmp_path):
    path = tmp_path / "dump.json"
    path.write_text(printed(*map(node, range(3)), resourceVersion=""))
    assert [each.content for each in streamed(path)] == [node(0), node(1), node(2)]
    lines = path.read_text().splitlines()
    for number, each in enumerate(streamed(path)):
        line = int(each.source.rpartition(":")[2])
        assert (lines[line - 1], f'"n{number}"' in lines[line + 6]) == ("        {", True)


def test_an_item_is_read_before_the_rest_of_the_file(monkeypatch):
    monkeypatch.setattr(printed_lists, "_BLOCK", 4096)
    content = printed(*map(node, range(2000))).encode()
    file, taken = io.BytesIO(content), list[int]()
    begin = file.read(4096)
    assert is_printed_list(begin)
    items = printed_items(begin, file, taken.append)
    for number, (item, _) in enumerate(islice(items, 1000)):
        assert item == node(number)
    assert sum(taken) < 0.6 * len(content)
    assert len(list(items)) == 1000


@pytest.mark.parametrize("block", [256, 257, 300, 1000])
def test_items_are_found_wherever_a_block_ends(monkeypatch, block):
    monkeypatch.setattr(printed_lists, "_BLOCK", block)
    file = io.BytesIO(printed(*map(node, range(20))).encode())
    items = printed_items(file.read(100), file, lambda count: None)
    assert [item for item, _ in items] == [node(number) for number in range(20)]


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
