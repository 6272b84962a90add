"""`python -m tools.docs_site`: the sources of the documentation's site, in build/docs/source.

The pages of docs/ are written for those who read them in the repository. What a site needs besides
is made here: a navigation from docs/index.md, the reference of the API and of the Python client,
the project's own pages (CHANGELOG.md and its neighbours), and links that lead somewhere. Those to
files that are no page lead to the repository where `DOCS_REPOSITORY` says where it is, and
otherwise become plain text. `make docs-site` has Sphinx build what stands there then.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import topospread_client
from tools import proto_pages

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCE: Final = ROOT / "build" / "docs" / "source"

PROJECT_PAGES: Final = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
}
"""Pages at the repository's root, by where the site has them."""

CLIENT_PAGE: Final = "reference/python-client.md"
API_PAGE: Final = "reference/index.md"
RECORDS_PAGE: Final = "decisions/index.md"
# Of a constant's value Sphinx would read the docstring of its type.
_DIRECTIVES: Final = {"Functions": "autofunction", "Constants": "py:data"}
"""Sphinx's directive for the names of a group; others are classes."""

_FENCE: Final = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def sections(index: str) -> dict[str, list[str]]:
    """The headings of docs/index.md with the pages and folders that each one's list links to."""
    found: dict[str, list[str]] = {}
    for part in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        items = re.findall(r"^[-*] \[[^\]]*\]\(([^)#\s]+)", body, re.MULTILINE)
        found[heading.strip()] = [each for each in items if "://" not in each]
    return found


def pages(repository: str = "") -> dict[str, str]:
    """All pages of the site by their paths.

    Args:
        repository: the address below which the repository's files are; empty where it is unknown.
    """
    originals = {path: str(_site_path(path)) for path in (*_documents(), *PROJECT_PAGES)}
    found = {
        site: _relinked((ROOT / original).read_text(encoding="utf-8"), original, repository)
        for original, site in originals.items()
    }
    reference = proto_pages.pages()
    found |= {f"{each.path}.md": each.text for each in reference}
    found[API_PAGE] = _api_page(reference)
    found[CLIENT_PAGE] = _client_page()
    found[RECORDS_PAGE] += _records()
    found["index.md"] += _navigation(sections((ROOT / "docs" / "index.md").read_text("utf-8")))
    return found


def write(target: Path = SOURCE, repository: str = "") -> None:
    """Make a folder the site's sources; files whose text did not change are left untouched."""
    made = pages(repository)
    for path in target.rglob("*.md"):
        if path.relative_to(target).as_posix() not in made:
            path.unlink()
    for name, text in made.items():
        path = target / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    shutil.copytree(ROOT / "docs" / "benchmarks", target / "benchmarks", dirs_exist_ok=True)
    for name in ("output.schema.json", "service-config.json"):
        shutil.copy(ROOT / "docs" / name, target)


def _documents() -> list[str]:
    found = (path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
    return sorted(each for each in found if not each.endswith("0000-template.md"))


def _relinked(text: str, original: str, repository: str) -> str:
    """A page whose links lead to the site's pages, or to the repository's files.

    Args:
        text: of the page.
        original: its path in the repository.
        repository: as for `pages`.
    """
    here = posixpath.dirname(_site_path(original) or original)

    def link(found: re.Match[str]) -> str:
        image, label, address = found.groups()
        if "://" in address or address.startswith("#"):
            return found[0]
        path, _, fragment = address.partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(original), path))
        site = _site_path(target)
        if site is None and repository:
            return f"{image}[{label}]({repository}/{target}{'#' * bool(fragment)}{fragment})"
        if site is None:
            return label
        if target == "README.md":
            fragment = ""  # the site begins with docs/index.md instead
        address = posixpath.relpath(site, here or ".")
        return f"{image}[{label}]({address}{'#' * bool(fragment)}{fragment})"

    parts = _FENCE.split(text)
    return "".join(part if part.startswith("```") else _LINK.sub(link, part) for part in parts)


def _site_path(path: str) -> str | None:
    """Where the site has a file or a folder of the repository; None where it has not."""
    if path in PROJECT_PAGES:
        return PROJECT_PAGES[path]
    if path == "README.md":
        return "index.md"
    if path in {"docs/decisions", "docs/decisions/README.md"}:
        return RECORDS_PAGE
    if path.startswith("proto/topospread/") and "/internal/" not in path:
        proto = path.removeprefix("proto/")
        return f"{proto_pages.page_path(proto)}.md" if proto.endswith(".proto") else API_PAGE
    if path.startswith("docs/") and "." in path and not path.endswith("0000-template.md"):
        return path.removeprefix("docs/")
    if path == "client/topospread_client":
        return CLIENT_PAGE
    return None


def _navigation(found: dict[str, list[str]]) -> str:
    """Sphinx' tables of contents, hidden in the first page, a caption each."""
    tables = []
    for heading, items in found.items():
        targets = [_site_path(posixpath.normpath(f"docs/{item}")) for item in items]
        lines = [target for target in targets if target]
        tables.append(
            "\n".join(["```{toctree}", ":hidden:", f":caption: {heading}", "", *lines, "```"])
        )
    return "\n" + "\n\n".join(tables) + "\n"


def _api_page(reference: list[proto_pages.Page]) -> str:
    entries = [each.path.removeprefix("reference/") for each in reference]
    return "\n".join(
        [
            "# API reference\n",
            "Services, messages and fields, as the `.proto` files have them.",
            "[The API](../api.md) shows how they are used.\n",
            "```{toctree}",
            ":maxdepth: 1",
            "",
            *entries,
            "```",
        ]
    )


def _records() -> str:
    """The table of contents of the decision records."""
    names = [path.name for path in sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))]
    lines = ["```{toctree}", ":maxdepth: 1", "", *(each for each in names if each[:4] != "0000")]
    return "\n".join(["", *lines, "```", ""])


def _client_page() -> str:
    """The reference of the Python client, which Sphinx reads from its docstrings."""
    clients = ["Client", "AsyncClient", "Connection"]
    groups: dict[str, list[str]] = {
        "Clients": clients,
        "Errors": [],
        "Values": [],
        "Functions": [],
        "Constants": [],
    }
    for name in topospread_client.__all__:
        if name not in clients:
            groups[_group_of(getattr(topospread_client, name))].append(name)
    lines = ["# Python client reference\n"]
    lines += ["[The Python client](../python-client.md) shows how it is used.\n"]
    for heading, names in groups.items():
        lines += [f"## {heading}\n", "```{eval-rst}", ".. currentmodule:: topospread_client", ""]
        for name in names:
            lines += [f".. {_DIRECTIVES.get(heading, 'autoclass')}:: {name}"]
            if heading not in _DIRECTIVES:
                lines += ["   :members:", "   :show-inheritance:"]
            lines += [""]
        lines += ["```\n"]
    return "\n".join(lines)


def _group_of(found: object) -> str:
    if isinstance(found, type):
        if issubclass(found, Exception):
            return "Errors"
        return "Values"
    if isinstance(found, (str, frozenset, Mapping)):
        return "Constants"
    return "Functions" if callable(found) and hasattr(found, "__name__") else "Values"


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(__doc__)
    write(repository=os.environ.get("DOCS_REPOSITORY", ""))
