"""The site of the documents: every page is in its navigation, and no link is lost on the way."""

from __future__ import annotations

import re

import pytest
from google.protobuf import descriptor_pool

import topospread_client
import topospread_client._methods
from tests.docs.pages import ROOT
from tools import docs_site, release_notes

DOCS = ROOT / "docs"
INDEX = (DOCS / "index.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def site():
    return docs_site.pages()


def test_every_document_is_in_the_navigation():
    entries = [each for items in docs_site.sections(INDEX).values() for each in items]
    assert len(entries) == len(set(entries))
    linked = {(DOCS / each).resolve() for each in entries}
    for page in DOCS.glob("*.md"):
        assert page in linked or page.name == "index.md", page
    for page in ROOT.glob("*.md"):
        assert page in linked or page.name == "README.md", page
    assert DOCS / "decisions" in linked


def test_the_site_has_the_pages_that_its_navigation_names(site):
    tables = re.findall(r"^```\{toctree\}\n(.*?)^```$", site["index.md"], re.MULTILINE | re.DOTALL)
    entries = {line for table in tables for line in table.splitlines() if line and line[0] != ":"}
    assert entries <= set(site)
    assert {docs_site.API_PAGE, docs_site.CLIENT_PAGE, docs_site.RECORDS_PAGE} <= entries


def test_links_to_pages_stay_links_and_others_lead_to_the_repository(site):
    published = docs_site.pages("https://example.org/blob/main")
    assert "[SECURITY.md](security-policy.md)" in site["contributing.md"]
    assert "](docs/" not in site["contributing.md"]
    assert "](https://example.org/blob/main/tests/upgrade)" in published["stability.md"]
    assert "](../tests" not in "".join(site.values())


def test_the_reference_has_every_method_and_message(site):
    written = "".join(text for path, text in site.items() if path.startswith("reference/"))
    pool = descriptor_pool.Default()
    names = re.findall(r"^\((topospread\.v1\.\w+Service)\)=$", written, re.MULTILINE)
    assert len(names) == 6
    for name in names:
        for method in pool.FindServiceByName(name).methods:
            assert f"({method.full_name})=" in written
            assert f"({method.input_type.full_name})=" in written
            for field in method.output_type.fields:
                assert f"| `{field.name}` |" in written


def test_the_reference_has_the_comments_of_the_proto_files(site):
    page = site["reference/topospread.v1.decision_service.md"]
    assert "PreFilter, Filter and Score in one round trip; the recommended call." in page
    assert "[EvaluatePodRequest](#topospread.v1.EvaluatePodRequest)" in page


def test_the_reference_has_every_name_of_the_client(site):
    found = re.findall(
        r"^\.\. (?:auto\w+|py:data):: (\w+)$", site[docs_site.CLIENT_PAGE], re.MULTILINE
    )
    assert sorted(found) == sorted(topospread_client.__all__)


def test_pages_that_are_gone_are_removed_and_others_are_left_untouched(tmp_path):
    docs_site.write(tmp_path)
    before = (tmp_path / "api.md").stat().st_mtime_ns
    (tmp_path / "gone.md").write_text("# Gone\n")
    docs_site.write(tmp_path)
    assert not (tmp_path / "gone.md").exists()
    assert (tmp_path / "api.md").stat().st_mtime_ns == before


def test_classes_that_the_glossary_names_exist():
    cells = re.findall(
        r"^\|.*\| ([^|]*) \|$", (DOCS / "glossary.md").read_text("utf-8"), re.MULTILINE
    )
    named = {name for cell in cells for name in re.findall(r"`([A-Z]\w+)`", cell)}
    code = "".join(p.read_text("utf-8") for p in (ROOT / "server" / "topospread").rglob("*.py"))
    assert len(named) > 20
    assert named <= set(re.findall(r"^class (\w+)", code, re.MULTILINE))


def test_facts_that_code_cites_exist():
    facts = set(
        re.findall(
            r"^\| (\d+) \|", (DOCS / "upstream-semantics.md").read_text("utf-8"), re.MULTILINE
        )
    )
    assert facts == {str(number) for number in range(1, 36)}
    cited = set()
    for path in (ROOT / "server" / "topospread").rglob("*.py"):
        for numbers in re.findall(r"facts?\s+([\d–, and]+)", path.read_text("utf-8")):
            cited |= set(re.findall(r"\d+", numbers))
    assert {"26", "33"} <= cited <= facts


def test_the_notes_of_a_release_are_its_part_of_the_changelog():
    changelog = (
        "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2027-01-01\n\n- New.\n\n## [0.1.0]\n"
    )
    assert release_notes.notes("0.2.0", changelog) == "- New."
    for version in ("0.1.0", "0.3.0", "Unreleased"):
        with pytest.raises(LookupError, match=version):
            release_notes.notes(version, changelog)
