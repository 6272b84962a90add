"""What the documents say is so: links lead somewhere, commands are accepted, programs run."""

from __future__ import annotations

import re
from importlib.util import find_spec

import click
import pytest
from google.protobuf import descriptor_pool

from tests.docs.pages import (
    GUIDE,
    PAGES,
    README,
    ROOT,
    anchors,
    commands,
    links,
    named,
    text,
)
from tools import reference_pages
from topospread.app import parts
from topospread.calls.rules import rules_of
from topospread.cli.main import root
from topospread.config.settings import ServerSettings
from topospread_proto.v1 import (
    cluster_state_service_pb2,
    decision_service_pb2,
    inspector_service_pb2,
    placement_service_pb2,
    planner_service_pb2,
    server_service_pb2,
)

CONTRIBUTING = ROOT / "CONTRIBUTING.md"
# Written by a run on a machine that is known, not by hand.
NOT_YET_WRITTEN = {"benchmarks.md"}

SERVICES = {
    service.full_name
    for module in (
        cluster_state_service_pb2,
        decision_service_pb2,
        inspector_service_pb2,
        placement_service_pb2,
        planner_service_pb2,
        server_service_pb2,
    )
    for service in module.DESCRIPTOR.services_by_name.values()
}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page):
    for path, fragment in links(page):
        target = (page.parent / path).resolve() if path else page
        if target.name in NOT_YET_WRITTEN:
            continue
        assert target.exists(), path
        if fragment:
            assert fragment in anchors(target), f"{path}#{fragment}"


def test_no_page_of_the_documents_is_left_out():
    linked = {(page.parent / path).resolve() for page in PAGES for path, _ in links(page) if path}
    for page in (ROOT / "docs").glob("*.md"):
        assert page in linked, page


@pytest.mark.parametrize("name", reference_pages.pages())
def test_pages_that_are_written_from_the_code_are_current(name):
    written = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert written == reference_pages.pages()[name], "run `make docs`"


@pytest.mark.parametrize("page", [p for p in PAGES if commands(p, "topospread")], ids=named)
def test_commands_of_our_own_are_accepted(page):
    for arguments in commands(page, "topospread"):
        accept(root, arguments)


def accept(command: click.Command, arguments: list[str], parent: click.Context | None = None):
    """Parse a command line as the program would, without carrying it out."""
    if not isinstance(command, click.Group):
        if "--help" not in arguments:
            command.make_context(command.name, list(arguments), parent=parent)
        return
    context = click.Context(command, parent=parent)
    verb = command.get_command(context, arguments[0])
    assert verb is not None, arguments
    accept(verb, arguments[1:], context)


@pytest.mark.parametrize("page", [README, GUIDE, CONTRIBUTING], ids=named)
def test_targets_of_make_exist(page):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named_targets = set(re.findall(r"(?:`|^ *)make ([a-z-]+)", text(page), re.MULTILINE))
    assert named_targets
    assert named_targets <= targets


def test_proofs_are_tests_that_exist():
    found = commands(ROOT / "docs" / "consistency.md", "python")
    assert found
    for option, module, *arguments in found:
        assert option == "-m"
        if module != "pytest":
            assert find_spec(module), module
            continue
        paths = [each for each in arguments if each.startswith("tests/")]
        assert paths
        for path in paths:
            assert (ROOT / path).exists(), path


@pytest.mark.parametrize("program", ["grpcurl", "ghz"])
def test_calls_by_reflection_name_calls_that_exist_and_files_that_are_there(program):
    pool = descriptor_pool.Default()
    found = [line for page in (README, GUIDE) for line in commands(page, program)]
    assert found
    for arguments in found:
        symbols = [each.replace("/", ".") for each in arguments if "topospread.v1." in each]
        for symbol in symbols:
            assert pool.FindMethodByName(symbol).name
        if "--data-file" in arguments:
            assert (ROOT / arguments[arguments.index("--data-file") + 1]).is_file()


def test_the_api_page_has_every_method_with_its_role():
    page = text(ROOT / "docs" / "api.md")
    table = page[page.index("## Services") : page.index("Beside them")]
    found = set()
    for part in re.split(r"^(?=\[\w+Service\]\()", table, flags=re.MULTILINE)[1:]:
        name = part[1 : part.index("]")]
        service = descriptor_pool.Default().FindServiceByName(f"topospread.v1.{name}")
        rows = re.findall(r"^\| (\w+)(?:, [^|]*)? \| (\w+) \|", part, re.MULTILINE)
        written = dict(row for row in rows if row[0] != "method")
        roles = {
            m.name: rules_of(service.full_name, m.name).permission.role for m in service.methods
        }
        needed = {name: role.value for name, role in roles.items() if role is not None}
        assert written == needed
        found.add(service.full_name)
    assert found == SERVICES


def test_the_api_page_has_every_feature_and_limit():
    page = text(ROOT / "docs" / "api.md")
    part = page[page.index("## What a server can do") : page.index("## JSON")]
    written = set(re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE))
    features = parts.features(ServerSettings(extender="place", reflection=True, sync=True))
    limits = server_service_pb2.ServerLimits.DESCRIPTOR.fields_by_name
    assert written == {*features, *limits}
