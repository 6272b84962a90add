"""`kubectl cluster-info dump` as one text: lists, with the logs of containers between them."""

from __future__ import annotations

import json

import pytest

from topospread.cli.container_logs import LogFilter
from topospread.cli.errors import BadInput
from topospread.cli.manifest_files import read, stream

END = "==== END logs for container c of pod d/{} ====\n"
GHOST = '{"kind": "PodList", "apiVersion": "v1", "items": [{"metadata": {"name": "ghost"}}]}'


def log(text: str, pod: str = "a") -> str:
    return f"==== START logs for container c of pod d/{pod} ====\n{text}{END.format(pod)}"


def listed(kind: str, *names: str, indent: int | None = 4) -> str:
    items = [{"metadata": {"name": name}} for name in names]
    content = {"kind": f"{kind}List", "apiVersion": "v1", "metadata": {}, "items": items}
    return json.dumps(content, indent=indent) + "\n"


NODES, PODS = listed("Node", "n"), listed("Pod", "p")
IN_YAML = "apiVersion: v1\nitems:\n- metadata: {name: p}\nkind: PodList\n"

DUMPS = {
    "no logs": (NODES + PODS, ["Node n", "Pod p"]),
    "an empty log": (NODES + log("") + PODS, ["Node n", "Pod p"]),
    "braces that do not pair": (NODES + log("{{{ [\n}\n") + PODS, ["Node n", "Pod p"]),
    "a list as a line of a log": (
        NODES + log(json.dumps(GHOST) + "\n") + PODS,
        ["Node n", "Pod p"],
    ),
    "a list over lines of a log": (NODES + log(listed("Pod", "ghost")), ["Node n"]),
    "a log whose last line does not end": (NODES + log("}") + PODS, ["Node n", "Pod p"]),
    "logs in a row": (NODES + log("x\n") + log("y", "b") + PODS, ["Node n", "Pod p"]),
    "the marks of another log in a log": (NODES + log(log("x", "b")) + PODS, ["Node n", "Pod p"]),
    "an end within a line": (
        NODES + log(f"x {END.format('a')[:-1]} y\n") + PODS,
        ["Node n", "Pod p"],
    ),
    "Windows' line ends": ((NODES + log("x{\n") + PODS).replace("\n", "\r\n"), ["Node n", "Pod p"]),
    "at the end, without a line end": ((NODES + log("x\n"))[:-1], ["Node n"]),
    "on one line each": (
        listed("Node", "n", indent=None) + log("{") + listed("Pod", "p", indent=None),
        ["Node n", "Pod p"],
    ),
    "YAML": (f"{IN_YAML}---\n{IN_YAML}{log('x: : {')}---\n{IN_YAML}", ["Pod p"] * 3),
    "long lines": (NODES + log("=" * 5000 + "\n" + "x" * 5000) + PODS, ["Node n", "Pod p"]),
    "a mark in a text": (
        NODES.replace('"n"', '"==== END logs for container c of pod d/a ===="'),
        ["Node ==== END logs for container c of pod d/a ===="],
    ),
}


@pytest.fixture
def written(tmp_path):
    def write(content: str | bytes) -> str:
        path = tmp_path / "dump.txt"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return write


@pytest.mark.parametrize(("content", "expected"), DUMPS.values(), ids=DUMPS)
def test_logs_are_left_out(written, content, expected):
    path = written(content)
    assert [each.label for each in read([path])] == expected
    assert [each.label for each in stream([path], lambda *_: None)] == expected


def filtered(content: str, size: int) -> str:
    logs = LogFilter("dump.txt")
    blocks = [content[at : at + size].encode() for at in range(0, len(content), size)]
    found = [logs.filter(each, at_end=False) for each in blocks]
    return b"".join([*found, logs.filter(b"", at_end=True)]).decode()


@pytest.mark.parametrize("size", [1, 2, 7, 64, 1000])
@pytest.mark.parametrize(("content", "expected"), DUMPS.values(), ids=DUMPS)
def test_blocks_of_any_size_give_the_same_text(content, expected, size):
    del expected
    assert filtered(content, size) == filtered(content, len(content))
    assert filtered(content, size).count("\n") == content.count("\n")


UNCERTAIN = {
    "the log goes on behind its end": NODES + log(f"x\n{END.format('a')}y\n") + PODS,
    "a list behind an end within a log": NODES
    + log(f"x\n{END.format('a')}{listed('Pod', 'ghost')}"),
    "a log of the same container": NODES + log("x\n") + log("y\n") + PODS,
    "an end without a beginning": NODES + END.format("a") + PODS,
}


@pytest.mark.parametrize("size", [1, 50, 1 << 20])
@pytest.mark.parametrize("content", UNCERTAIN.values(), ids=UNCERTAIN)
def test_a_log_whose_end_is_not_certain_is_refused(content, size):
    with pytest.raises(BadInput, match="what is log is not certain: `kubectl cluster-info dump"):
        filtered(content, size)


def test_a_dump_that_is_cut_in_a_log_is_refused(written):
    path = written(NODES + log("x\ny\n")[:-10])
    with pytest.raises(BadInput, match="ends within the log of container c of pod d/a: it was cut"):
        read([path])
    with pytest.raises(BadInput, match="it was cut"):
        list(stream([path], lambda *_: None))


def test_a_line_behind_a_log_has_its_number(written):
    manifests = read([written(NODES + log("x\ny\n") + PODS)])
    lines = (NODES + log("x\ny\n")).count("\n")
    assert manifests[1].source.endswith(f":{lines + 6}")
