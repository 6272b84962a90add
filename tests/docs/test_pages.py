"""What the documents say is so: links lead somewhere, commands are accepted, programs run."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec

import click
import pytest
from google.protobuf import descriptor_pool

from tests.docs.pages import PAGES, ROOT, anchors, blocks, commands, links, text
from tests.servers import incoming, node, pod
from tools import reference_pages
from topospread.app import factories
from topospread.cli.main import root
from topospread.config.settings import ServerSettings
from topospread.store.urls import MEMORY
from topospread.transports.grpc.authorization import permission_of
from topospread_client import Client
from topospread_proto.v1 import (
    cluster_state_service_pb2,
    decision_service_pb2,
    lease_service_pb2,
    placement_service_pb2,
    planner_service_pb2,
    server_service_pb2,
)

README = ROOT / "README.md"
GUIDE = ROOT / "docs" / "getting-started.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
# Written by a run on a machine that is known, not by hand.
NOT_YET_WRITTEN = {"benchmarks.md"}

SERVICES = {
    service.full_name
    for module in (
        cluster_state_service_pb2,
        decision_service_pb2,
        lease_service_pb2,
        placement_service_pb2,
        planner_service_pb2,
        server_service_pb2,
    )
    for service in module.DESCRIPTOR.services_by_name.values()
}


def named(page):
    return str(page.relative_to(ROOT))


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
        needed = {
            m.name: permission_of(service.full_name, m.name).role.value for m in service.methods
        }
        assert written == needed
        found.add(service.full_name)
    assert found == SERVICES


def test_the_api_page_has_every_feature_and_limit():
    page = text(ROOT / "docs" / "api.md")
    part = page[page.index("## What a server can do") : page.index("## JSON")]
    written = set(re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE))
    features = factories.features(ServerSettings(extender="place", reflection=True, sync=True))
    limits = server_service_pb2.ServerLimits.DESCRIPTOR.fields_by_name
    assert written == {*features, *limits}


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    """A server with the sample cluster; its address."""
    where = ["--listen", "127.0.0.1:0", "--http", "off", "--store", MEMORY]
    command = [sys.executable, "-m", "topospread", "serve", *where, "--log-level", "warning"]
    errors = (tmp_path_factory.mktemp("serving") / "errors").open("w+")
    with errors, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as it:
        assert it.stdout is not None
        said = re.search(r"listens on (\S+)", it.stdout.readline())
        assert said, errors.name
        apply = [sys.executable, "-m", "topospread", "apply", "-f", "examples/cluster"]
        subprocess.run([*apply, "--address", said[1]], cwd=ROOT, check=True, capture_output=True)
        yield said[1]
        it.terminate()


@pytest.mark.parametrize("page", [README, GUIDE], ids=named)
def test_python_programs_run_as_they_stand(page, serving):
    (program,) = blocks(page, "python")
    assert "127.0.0.1:7946" in program
    ran = subprocess.run(
        [sys.executable, "-c", program.replace("127.0.0.1:7946", serving)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p not in (README, GUIDE) and blocks(p, "python")], ids=named
)
def test_pieces_of_python_programs_run(page, serving):
    """With what a reader has by then: a client, a pod or some, a manifest to simulate with."""
    hosts = [node("node-1", "a"), node("node-2", "b")]
    bound = pod("checkout-7f9c", "node-1", "web")
    bound.pod.metadata.namespace = "shop"
    for piece in blocks(page, "python"):
        with Client(serving, cluster=f"pieces-of-{page.stem}") as client:
            client.apply_objects([*hosts, bound])
            known = {
                "client": client,
                "pod": incoming(),
                "pods": [incoming(), incoming(maxSkew=2)],
                "deployment": incoming(),
                "template": hosts[0].node,
            }
            exec(piece.replace("127.0.0.1:7946", serving), known)


def test_the_example_of_a_recorded_case_passes(serving, tmp_path):
    (example,) = blocks(ROOT / "docs" / "conformance.md", "json")
    file = tmp_path / "case.json"
    file.write_text(example, encoding="utf-8")
    command = [sys.executable, "-m", "topospread", "conformance", str(file), "--address", serving]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.stdout == "1 passed, 0 failed\n"
