"""Every block of every page runs as it stands, in order, on the server of getting-started."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import kubernetes_validate
import pytest
import yaml

from tests.apiserver.objects import Objects
from tests.apiserver.server import ApiServer
from tests.docs.pages import GUIDE, README, ROOT, all_blocks, links, named, prose
from tests.docs.reader import PATH, Reader
from tests.requirements import without
from topospread.access.file import read_access
from topospread.config.loading import load_settings
from topospread_client import Client
from topospread_proto.v1 import cluster_state_service_pb2 as state
from topospread_proto.v1 import common_pb2

READING_ORDER = [
    README,
    *(
        (ROOT / "docs" / path).resolve()
        for path, _ in links(ROOT / "docs" / "index.md")
        if path.endswith(".md") and not path.startswith("..")
    ),
]
FOLLOWED = {"sh", "console", "python"}
"""The languages of blocks that a reader carries out."""
READ = {"go", "json", "mermaid", "text", "ts", "yaml"}
REASONS = {
    "is tried in tests/languages",
    "needs a Kubernetes cluster",
    "needs a store that was exchanged",
    "needs systemd",
    "takes minutes",
}
"""Why blocks are not followed here. They are parsed all the same."""


def with_blocks(languages):
    return [
        page
        for page in dict.fromkeys(READING_ORDER)
        if any(each.language in languages for each in all_blocks(page))
    ]


@pytest.mark.long
@pytest.mark.parametrize("page", with_blocks(FOLLOWED), ids=named)
def test_every_block_of_a_page_runs_as_it_stands(page, tmp_path):
    with ApiServer(objects_of(page)) as api, Reader(tmp_path, api) as reader:
        if page not in (README, GUIDE):
            begin(reader)
        for block in all_blocks(page):
            if not block.not_run:
                reader.follow(block)
        assert_as_it_was(reader.address)
    if reader.missing:
        without(", ".join(sorted(reader.missing)), target="languages")


def objects_of(page):
    """What the API server of a page's kubeconfig has."""
    objects = Objects()
    if page.name == "five-minutes.md":
        manifest = (ROOT / "examples" / "report" / "objects.yaml").read_text("utf-8")
        objects.put(*yaml.load(manifest, yaml.CSafeLoader)["items"])
    return objects


def begin(reader):
    """What a reader of any other page has done: started the server, and written the sample."""
    for block in all_blocks(GUIDE):
        reader.follow(block)
        if "topospread apply" in block.text:
            return


def assert_as_it_was(address):
    """The next page finds the sample in `default`, no more and no less: their order is free."""
    sample = [
        each
        for path in sorted((ROOT / "examples" / "cluster").glob("*.yaml"))
        for each in yaml.load_all(path.read_text("utf-8"), yaml.CSafeLoader)
    ]
    with Client(address) as client:
        results = client.apply_objects(sample).results
        assert {each.outcome for each in results} == {state.OBJECT_OUTCOME_UNCHANGED}
        kinds = [kind for kind in common_pb2.Kind.values() if kind]
        kinds.remove(common_pb2.KIND_RESERVATION)
        assert sum(1 for kind in kinds for _ in client.list_objects(kind)) == len(sample)
        assert not list(client.list_reservations())


@pytest.mark.parametrize("page", dict.fromkeys(READING_ORDER), ids=named)
def test_blocks_have_a_language_and_a_reason_where_they_are_not_run(page):
    for block in all_blocks(page):
        assert block.language in FOLLOWED | READ, block
        assert block.not_run in {"", *REASONS}, block
        if block.language == "sh":
            subprocess.run(["bash", "-n", "-c", block.text], check=True)
    assert not re.search(r"\n\n    \S", prose(page)), "a block is fenced"


def not_written(language):
    """The blocks in a language that are not the content of a file of the reader's."""
    return [
        pytest.param(each.text, id=f"{named(page)}:{each.line}")
        for page in dict.fromkeys(READING_ORDER)
        for each in all_blocks(page)
        if each.language == language and not each.file
    ]


@pytest.mark.parametrize("written", not_written("yaml"))
def test_configurations_are_taken_by_what_reads_them(written, tmp_path):
    file = tmp_path / "configuration.yaml"
    file.write_text(written, encoding="utf-8")
    kind = next(yaml.safe_load_all(written))["kind"]
    if kind == "TopospreadAccess":
        read_access(written, "access.yaml")
    elif kind in ("ClusterRole", "Deployment"):
        kubernetes_validate.validate(yaml.safe_load(written), "1.36.0", strict=True)
    else:
        load_settings({"config": str(file)}, {"HOME": str(tmp_path)})


@pytest.mark.parametrize("written", not_written("json"))
def test_parts_of_documents_have_names_of_the_schema_or_the_log(written):
    """An ellipsis stands for a value, or for more of them."""
    whole = re.sub(r"(?<=: )…|(?<=, )…(?=\})", '"…": 0', written)
    found = json.loads(whole.replace(': "…": 0', ": 0"))
    known = (ROOT / "docs" / "output.schema.json").read_text("utf-8")
    if "logger" not in found:
        assert all(f'"{name}"' in known for name in found if name != "…")


@pytest.mark.parametrize("written", not_written("go"))
def test_fragments_in_go_parse(written):
    program = shutil.which("gofmt", path=PATH)
    if program is None:
        without("gofmt", target="languages")
    whole = f"package fragment\n\nfunc _() error {{\n{written}\n}}\n"
    ran = subprocess.run([program, "-e"], input=whole, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
