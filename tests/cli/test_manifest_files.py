"""Files of every form that kubectl prints and people write."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
import threading

import pytest

from topospread.cli import manifest_files
from topospread.cli.errors import BadInput
from topospread.cli.manifest_files import read, read_value

POD = "kind: Pod\nmetadata: {name: p}\n"
JSON_POD = json.dumps({"kind": "Pod", "metadata": {"name": "p"}})
LIST_IN_YAML = f"apiVersion: v1\nitems:\n- {JSON_POD}\nkind: List\nmetadata: {{}}\n"


@pytest.fixture
def written(tmp_path):
    def write(content: str | bytes, name: str = "input.yaml") -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return write


def labels(manifests):
    return [manifest.label for manifest in manifests]


FORMS = {
    "one document": (POD, ["Pod p"]),
    "several documents": (f"---\n{POD}---\n\n---\n# nothing\n---\n{POD}", ["Pod p", "Pod p"]),
    "json": (JSON_POD, ["Pod p"]),
    "json after blanks": (f"\n\n  {JSON_POD}\n", ["Pod p"]),
    "json objects in a row": (f"{JSON_POD}\n{JSON_POD} {JSON_POD}", ["Pod p"] * 3),
    "flow mapping of yaml": ("{kind: Pod, metadata: {name: p}}", ["Pod p"]),
    "list": (f"kind: List\nitems:\n- {JSON_POD}\n- {JSON_POD}\n", ["Pod p", "Pod p"]),
    "typed list without kinds": ("kind: PodList\nitems: [{metadata: {name: x}}]", ["Pod x"]),
    "list within a list": (
        f"kind: List\nitems: [{{kind: List, items: [{JSON_POD}]}}]",
        ["Pod p"],
    ),
    "empty list": ("kind: List\nitems: []", []),
    "list of null": ("kind: PodList\nitems:\n", []),
    "empty file": ("", []),
    "only comments": ("# nothing\n---\n", []),
    "namespace": ("kind: Pod\nmetadata: {name: p, namespace: n}", ["Pod n/p"]),
    "generated name": ("kind: Pod\nmetadata: {generateName: p-}", ["Pod p-"]),
    "no metadata": ("kind: Pod\nmetadata: 5", ["Pod without a name"]),
    "utf-16": (POD.encode("utf-16"), ["Pod p"]),
    "utf-16 of the other order": (b"\xfe\xff" + POD.encode("utf-16-be"), ["Pod p"]),
    "json in utf-16": (JSON_POD.encode("utf-16"), ["Pod p"]),
    "json behind a mark": (b"\xef\xbb\xbf" + JSON_POD.encode(), ["Pod p"]),
    "yaml behind a mark": (b"\xef\xbb\xbf" + POD.encode(), ["Pod p"]),
    "line ends of Windows": (f"---\n{POD}---\n{POD}".replace("\n", "\r\n"), ["Pod p", "Pod p"]),
}


LIST = f"apiVersion: v1\nitems:\n- {JSON_POD}\nkind: List\n"
PIPED = {
    "one value of json": (JSON_POD, True),
    "a list of kubectl": (LIST, True),
    "a marked end": (f"{POD}---\n{POD}...\n", True),
    "nothing": ("", True),
    "one document": (POD, False),
    "several documents": (f"{POD}---\n{POD}", False),
    "several values of json": (f"{JSON_POD}\n{JSON_POD}\n", False),
    "a list whose kind comes first": (f"kind: List\nitems:\n- {JSON_POD}\n", False),
    "a list and a document": (f"{LIST}---\n{POD}", False),
}


@pytest.mark.parametrize(("content", "fine"), PIPED.values(), ids=PIPED)
def test_piped_input_for_replace_must_show_its_end(content, fine, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(content,))
    writer.start()
    try:
        if fine:
            read([str(pipe)], whole=True)
        else:
            with pytest.raises(BadInput, match="may have been cut: give one JSON value"):
                read([str(pipe)], whole=True)
    finally:
        writer.join()


def test_file_for_replace_must_end_its_last_line(written):
    assert labels(read([written(POD)], whole=True)) == ["Pod p"]
    assert labels(read([written(f"{LIST}".rstrip())], whole=True)) == ["Pod p"]
    cut = written(POD.rstrip())
    assert labels(read([cut])) == ["Pod p"]
    with pytest.raises(BadInput, match="may have been cut: its last line does not end"):
        read([cut], whole=True)


def test_a_page_of_a_list_is_not_the_whole_list(written):
    page = written('{"kind": "PodList", "metadata": {"continue": "x"}, "items": []}')
    assert read([page]) == []
    with pytest.raises(BadInput, match="one page of a longer list"):
        read([page], whole=True)


@pytest.mark.parametrize(("content", "expected"), FORMS.values(), ids=FORMS)
def test_forms_of_manifests_are_read(written, content, expected):
    path = written(content)
    assert labels(read([path])) == expected
    assert labels(manifest_files.stream([path], lambda *_: None)) == expected


def test_manifest_has_its_file_and_line(written):
    nested = f"{{kind: List, items: [{JSON_POD}]}}"
    path = written(f"{POD}---\nkind: List\nitems:\n- {JSON_POD}\n- {nested}\n")
    assert [manifest.source for manifest in read([path])] == [
        f"{path}:1",
        f"{path}:6",
        f"{path}:7 items[0]",
    ]


def test_scalars_are_read_as_kubectl_reads_them(written):
    text = "kind: X\ntime: 2026-01-02T03:04:05Z\nratio: 12:30\noctal: 0o17\nbig: 1e3\nno: on\n"
    (manifest,) = read([written(text)])
    assert manifest.content == {
        "kind": "X",
        "time": "2026-01-02T03:04:05Z",
        "ratio": "12:30",
        "octal": 15,
        "big": 1000.0,
        False: True,
    }


def test_directories_give_their_files_in_order(written, tmp_path):
    written(POD.replace("p}", "second}"), "folder/b.yml")
    written(JSON_POD.replace('"p"', '"first"'), "folder/a.json")
    written("not read", "folder/readme.txt")
    written(POD.replace("p}", "deep}"), "folder/below/c.yaml")
    folder = str(tmp_path / "folder")
    assert labels(read([folder])) == ["Pod first", "Pod second"]
    assert labels(read([folder], recursive=True)) == ["Pod first", "Pod second", "Pod deep"]


def test_empty_standard_input_is_refused(monkeypatch):
    for content in (b"", b" \n"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        with pytest.raises(BadInput, match="standard input is empty: did the command"):
            read(["-"])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        with pytest.raises(BadInput, match="standard input is empty: did the command"):
            list(manifest_files.stream(["-"], lambda *_: None))


def test_standard_input_and_files_together(written, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(JSON_POD.encode())))
    path = written(POD.replace("p}", "q}"))
    assert labels(read([path, "-"])) == ["Pod q", "Pod p"]


def ladder(step: str) -> str:
    """Anchors a1 to a9, each of which stands for ten times the one before."""
    return "".join(
        f"a{number}: &a{number} " + step.format(",".join([f"*a{number - 1}"] * 10)) + "\n"
        for number in range(1, 10)
    )


MISTAKES = {
    "tabs": ("kind: Pod\nmetadata:\n\tname: p\n", ":3: not YAML: found character"),
    "open bracket": ("kind: Pod\nlabels: [a\nb: c\n", ":3: not YAML: "),
    "twice": ("kind: Pod\nspec: {}\nkind: Node\n", ":3: not YAML: the key 'kind' is given twice"),
    "twice in json": (
        '{"kind": "Pod", "spec": {}, "spec": 1}',
        ":1: the key 'spec' is given twice in one object",
    ),
    "twice in the second json": (
        f'{JSON_POD}\n{{"kind": "List", "items": [{{"kind": "Pod", "kind": "Node"}}]}}',
        ":2: the key 'kind' is given twice in one object",
    ),
    "unknown alias": ("kind: *missing\n", ":1: not YAML: found undefined alias"),
    "python tag": ("!!python/object:os.system {}\n", ":1: not YAML: could not determine"),
    "no kind": ("metadata: {name: p}\n", ":1: this object has no `kind`"),
    "kind of a wrong type": ("kind: [Pod]\n", ":1: this object has no `kind`"),
    "a list": ("- kind: Pod\n", ":1: expected a Kubernetes object, found a list"),
    "a text": ("hello\n", ":1: expected a Kubernetes object, found a text"),
    "a number": ("5\n", ":1: expected a Kubernetes object, found a number"),
    "second document": (f"{POD}---\nhello\n", ":4: expected a Kubernetes object, found a text"),
    "items of a wrong type": (
        "kind: List\nitems: {}\n",
        ":1: the items of a List must be a list, found an object",
    ),
    "item of a wrong type": ("kind: List\nitems: [5]\n", ":2: expected a Kubernetes"),
    "null item": ("kind: List\nitems: [null]\n", ":2: expected a Kubernetes object, found"),
    "cut json": ('{"kind": "Pod",\n "metadata": \n', ":2: not JSON: Expecting value at column 13"),
    "json cut in a text": (
        '{"kind": "Pod",\n "meta',
        ":2: not JSON: Unterminated string starting at column 2",
    ),
    "json with rubbish": (f"{JSON_POD}\n{JSON_POD[:-1]}", "not JSON: "),
    "helm template": (
        "{{ .Values.pod }}\n",
        " at column 2: it looks like a template of Helm: give the output of `helm template`",
    ),
    "helm template of a value": (
        "kind: Pod\nmetadata:\n  name: {{ .Release.Name }}\n",
        ":3: not YAML: found unhashable key: it looks like a template of Helm",
    ),
    "helm template of a part of a value": (
        'kind: Pod\nmetadata:\n  name: {{ include "a" . }}-b\n',
        ": it looks like a template of Helm: give the output of `helm template`",
    ),
    "tabs in front": (
        "kind: Pod\nmetadata:\n\tname: p\n",
        ":3: not YAML: found character that cannot start any token: lines begin with tabs",
    ),
    "tabs of JSON": ('{\n\t"kind": "Pod",\n', "Expecting a key at column"),
    "kubectl's table": (
        "NAME   READY   STATUS    NODE\nweb-0  1/1     Running   a1\n",
        ": it is a table for people: `kubectl get -o json` prints objects",
    ),
    "kubectl's table of all namespaces": (
        "NAMESPACE   NAME   READY\nshop        web-0  1/1\n",
        ": it is a table for people",
    ),
    "kubectl's description": (
        "Name:       web-0\nNamespace:  shop\nNode:  a: b: c\n",
        ": it is what `kubectl describe` prints: `kubectl get -o json` prints objects",
    ),
    "kubectl's error": (
        'Error from server (Forbidden): pods is forbidden: User "x" cannot list it\n',
        ": it is a message of kubectl, and no objects",
    ),
    "kubectl's error without colons": ("No resources found\n", ": it is a message of kubectl"),
    "API server's refusal": (
        '{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "Unauthorized"}',
        ":1: it is an API server's refusal, and no objects: Unauthorized",
    ),
    "page of a login": ("<!DOCTYPE html><html><p>", ": it is a page of the web"),
    "Markdown": (f"```yaml\n{POD}```\n", ": it has a line of ```, as Markdown: take it out"),
    "a line of a terminal": (
        f"$ kubectl get pods -o yaml\n{POD}",
        ": its first line is of a terminal: take it out",
    ),
    "a warning before objects": (f"Warning: v1 is deprecated\n{JSON_POD}", ": its first line is"),
    "gzip": (gzip.compress(POD.encode()), ": compressed with gzip: unpack it first, with `gunzip`"),
    "zip": (b"PK\x03\x04" + bytes(30), ": an archive: unpack it first, and name its folder"),
    "tar": (
        b"x" + bytes(256) + b"ustar" + bytes(250),
        ": an archive: unpack it first, and name its folder",
    ),
    "Latin-1": (
        "kind: Pod\nx: caf\xe9 au lait\n".encode("latin-1"),
        ":2: not YAML: it is no UTF-8",
    ),
    "Latin-1 in JSON": (
        '{"kind": "Pod",\n"x": "caf\xe9"}'.encode("latin-1"),
        ":2: not JSON: it is no UTF-8: save it as UTF-8",
    ),
    "objects without a separator": (
        f"apiVersion: v1\n{POD}apiVersion: v1\n{POD}",
        ":4: not YAML: the key 'apiVersion' is given twice: a line of `---` is missing before it",
    ),
    "lists without a separator": (
        f"{LIST_IN_YAML}{LIST_IN_YAML}",
        ":6: not YAML: the key 'apiVersion' is given twice: a line of `---` is missing before it",
    ),
    "a list that is cut": (LIST_IN_YAML.partition("kind: List")[0], ":1: this list has no `kind`"),
    "an array of objects": (f"[{JSON_POD}]", "a list: `kubectl get -o json` prints them as a List"),
    "not text": (b"\x00\x01\x02", ": not YAML: "),
    "not utf-8": (b"kind: \xff\xfe\n", ": not YAML: "),
    "deep nesting": ("[" * 5000, ": not JSON: nested too deep"),
    "deep nesting of yaml": ("a: " + "[" * 200_000, ":1: not YAML: nested more than 200 deep"),
    "deep nesting of lists": ("- " * 200_000, ":1: not YAML: nested more than 200 deep"),
    "deep nesting of keys": ("? " * 200_000, ":1: not YAML: nested more than 200 deep"),
    "deep nesting of both": ("? - " * 100_000, ":1: not YAML: nested more than 200 deep"),
    "deep nesting in UTF-16": (
        ("? " * 200_000).encode("utf-16"),
        ":1: not YAML: nested more than 200 deep",
    ),
    "cut UTF-16": (b"\xff\xfea", ": it begins as UTF-16 and does not go on so: save it as UTF-8"),
    "lists in lists": (
        '{"kind":"List","items":[' * 400 + JSON_POD + "]}" * 400,
        ": lists within lists, more than 8 deep",
    ),
    "aliases that multiply": (
        "a0: &a0 [x]\n" + ladder("[{}]"),
        ":7: not YAML: aliases stand for more than 1000000 values",
    ),
    "merges that multiply": (
        "a0: &a0 {k: v}\n" + ladder("{{<<: [{}]}}"),
        ":7: not YAML: aliases stand for more than 1000000 values",
    ),
    "aliases of a long text": (
        f"a: &a {'x' * 10_000}\nb: [{','.join(['*a'] * 5000)}]\n",
        ":2: not YAML: aliases stand for more than 1000000 values",
    ),
    "list of itself": (
        "&l\nkind: List\nitems: [*l]\n",
        ": not YAML: an alias stands for what it is a part of",
    ),
    "list of itself, by an anchor that is given again": (
        "a: &l [x]\nb: &l [*l]\n",
        ": not YAML: an alias stands for what it is a part of",
    ),
    "explicit number": ("kind: !!int ''\n", ":1: not YAML: '' is no int"),
    "explicit fraction": ("kind: !!float ''\n", ":1: not YAML: '' is no float"),
    "explicit truth": ("kind: !!bool perhaps\n", ":1: not YAML: 'perhaps' is no bool"),
    "explicit time": ("kind: !!timestamp noon\n", ":1: not YAML: 'noon' is no timestamp"),
    "too many digits": ("kind: " + "9" * 5000, ":1: not YAML: '99999999"),
}


@pytest.mark.parametrize(("content", "complaint"), MISTAKES.values(), ids=MISTAKES)
def test_errors_name_file_and_line(written, content, complaint):
    path = written(content)
    with pytest.raises(BadInput) as refused:
        read([path])
    assert str(refused.value).startswith(path)
    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("values.yaml", "Helm reads such a file: give the output of `helm template`"),
        ("values-prod.yml", "Helm reads such a file: give the output of `helm template`"),
        ("Chart.yaml", "Helm reads such a file: give the output of `helm template`"),
        ("kustomization.yaml", "kustomize reads such a file: give the output of `kustomize build`"),
        ("my-values.txt", "is it a Kubernetes manifest?"),
    ],
)
def test_a_file_of_another_tool_is_known_by_its_name(written, name, hint):
    path = written("image: {tag: a}\n", f"chart/{name}")
    with pytest.raises(BadInput) as refused:
        read([path])
    assert str(refused.value) == f"{path}:1: this object has no `kind`: {hint}"


def test_braces_of_other_templates_are_not_taken_for_helm(written):
    with pytest.raises(BadInput) as refused:
        read([written('kind: "{{workflow.name}}\n')])
    assert "Helm" not in str(refused.value)


def test_aliases_are_resolved(written):
    labels = "labels: &l {app: web}"
    text = f"kind: Pod\nmetadata: {{name: p, {labels}}}\nspec: {{nodeSelector: *l}}\n"
    (manifest,) = read([written(text)])
    assert manifest.content["spec"] == {"nodeSelector": {"app": "web"}}


def test_an_anchor_may_be_given_again(written):
    text = (
        "kind: Pod\nmetadata: {name: &n a, namespace: *n}\nspec: {nodeName: &n b, hostname: *n}\n"
    )
    (manifest,) = read([written(text)])
    assert manifest.label == "Pod a/a"
    assert manifest.content["spec"] == {"nodeName": "b", "hostname": "b"}


def test_json_and_yaml_may_follow_one_another(written):
    assert labels(read([written(f"{JSON_POD}\n---\n{POD}")])) == ["Pod p", "Pod p"]


@pytest.mark.parametrize(
    ("content", "fits"),
    [
        ("x" * 101, False),
        (JSON_POD + " " * 1000, False),
        (JSON_POD + " " * 500, True),
        (POD + "#" * 60, True),
        (POD + "#" * 100, False),
    ],
)
def test_input_over_the_limit_is_refused(written, monkeypatch, content, fits):
    monkeypatch.setattr(manifest_files, "MAX_BYTES", 800)
    path = written(content)
    for one in (path, "-"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
        if fits:
            assert labels(read([one])) == ["Pod p"]
            continue
        with pytest.raises(BadInput, match="too much to read at once: at most 0 MiB of JSON"):
            read([one])


def test_limit_holds_for_all_files_together(written, monkeypatch):
    monkeypatch.setattr(manifest_files, "MAX_BYTES", 8 * len(POD) * 2)
    path = written(POD)
    assert labels(read([path, path])) == ["Pod p", "Pod p"]
    with pytest.raises(BadInput, match="in all files together"):
        read([path, path, path])


def test_control_characters_of_a_file_name_are_escaped(written):
    name = "\x1b[2J" + "x" * 10_000
    (manifest,) = read([written(json.dumps({"kind": "Pod", "metadata": {"name": name}}))])
    assert manifest.label.startswith("Pod \\x1b[2Jxxx")
    assert len(manifest.label) < 5000


def test_missing_files_are_reported(tmp_path):
    with pytest.raises(BadInput, match="no such file: check the path"):
        read([str(tmp_path / "nothing.yaml")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="empty: this directory has no"):
        read([str(tmp_path / "empty")])


def test_file_of_one_document_is_read(written):
    assert read_value(written("a: 1")) == {"a": 1}
    with pytest.raises(BadInput, match="expected one document, found 2"):
        read_value(written("a: 1\n---\nb: 2\n"))
