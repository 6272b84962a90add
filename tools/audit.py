"""Checks what is locked, without network: `make audit`.

- Each requirement of each lock names one version and the hashes of its files, and nothing else
  is in a lock: no address, no other index, no folder.
- The locks are what both pyproject.toml ask for: each requirement is met, those of the packages as
  well, and no package is there that nothing asks for. This is told from what is installed, so it
  holds for this version of Python and this system; of the compiler's lock and of that of the
  oldest versions, which are installed elsewhere, only what pyproject.toml itself asks for is.
- A server's packages have licences that are known and allowed.
- `make sbom` names exactly what the server's lock does.

Known vulnerabilities are published day by day and are no part of a lock: `make audit ONLINE=1` asks
for them.
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from tools import sbom

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ROOT = Path(__file__).resolve().parents[1]
ALLOWED = {
    *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0"),
    *("MPL-2.0", "PSF-2.0", "Zlib"),
}
"""Licences, by their SPDX names, of what is put into an image."""

_NAMES = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "MIT License": "MIT",
}
"""What packages call them that have no expression of SPDX names."""

_HASH = re.compile(r"\s--hash=(\S*)")
_SHA256 = re.compile(r"sha256:[0-9a-f]{64}")


class Locked(NamedTuple):
    """A requirement of a lock; of one package there may be several, for different systems."""

    name: str
    version: str
    requirement: Requirement

    def here(self) -> bool:
        """Whether it is meant for this version of Python and this system."""
        marker = self.requirement.marker
        return marker is None or marker.evaluate()


def parsed(lock: str) -> tuple[list[Locked], list[str]]:
    """The requirements of a lock, and what is wrong with it."""
    found: list[Locked] = []
    problems: list[str] = []
    for line in lock.replace("\\\n", " ").splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        written = line.partition(" --hash=")[0].strip()
        try:
            requirement = Requirement(written)
        except InvalidRequirement:
            problems.append(f"{written}: only packages of an index may be locked")
            continue
        pin = re.fullmatch(r"==([^*,]+)", str(requirement.specifier))
        if requirement.url or pin is None:
            problems.append(f"{written}: not one version")
        hashes = _HASH.findall(line)
        if not hashes or not all(map(_SHA256.fullmatch, hashes)):
            problems.append(f"{written}: not locked by sha256 hashes")
        name: str = canonicalize_name(requirement.name)
        found.append(Locked(name, pin[1] if pin else "", requirement))
    return found, problems


def unmet(wanted: Iterable[str], lock: Iterable[Locked]) -> Iterator[str]:
    """What a lock lacks of what is asked for, and what it has too much, here."""
    locked = {each.name: each.version for each in lock if each.here()}
    reached: set[tuple[str, str]] = set()
    ahead = [(each, "pyproject.toml") for each in map(Requirement, wanted)]
    while ahead:
        requirement, asker = ahead.pop()
        if requirement.marker and not requirement.marker.evaluate():
            continue
        name: str = canonicalize_name(requirement.name)
        if name not in locked:
            yield f"{requirement}: {asker} asks for it, and it is not locked"
            continue
        if not requirement.specifier.contains(locked[name], prereleases=True):
            yield f"{requirement}: {asker} asks for it, locked is {locked[name]}"
        for extra in ("", *requirement.extras):
            if (name, extra) not in reached:
                reached.add((name, extra))
                ahead += [(each, name) for each in _asked_by(name, extra)]
    names = {name for name, _ in reached}
    for name, version in locked.items():
        if name not in names:
            yield f"{name}: locked, and nothing asks for it"
        elif (installed := _installed(name)) != version:
            yield f"{name}: locked is {version}, installed {installed or 'nothing'}: make setup"


def _not_locked(wanted: Iterable[str], lock: Iterable[Locked]) -> Iterator[str]:
    """What a lock of another environment lacks of what is asked for at first hand."""
    locked = {each.name: each.version for each in lock if each.here()}
    for requirement in map(Requirement, wanted):
        version = locked.get(canonicalize_name(requirement.name))
        if requirement.marker and not requirement.marker.evaluate():
            continue
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            yield f"{requirement}: pyproject.toml asks for it, locked is {version or 'nothing'}"


def unlicensed(lock: Iterable[Locked]) -> Iterator[str]:
    """What has no licence, or one that is not allowed, of what is installed."""
    for name in sorted({each.name for each in lock if _installed(each.name)}):
        given = licences(metadata.metadata(name))
        if not given or given - ALLOWED:
            yield f"{name}: its licence is {' and '.join(sorted(given)) or 'unknown'}"


def licences(package: Any) -> set[str]:
    """The licences that a package's metadata name."""
    expression = package.get("License-Expression")
    if expression:
        return set(re.findall(r"[\w.+-]+", expression)) - {"AND", "OR", "WITH"}
    classifiers = package.get_all("Classifier") or ()
    licenses = [each.rpartition(" :: ")[2] for each in classifiers if each.startswith("License")]
    text = package.get("License") or ""
    names = [text] if _NAMES.get(text, text) in ALLOWED or not licenses else licenses
    return {_NAMES.get(name, name) for name in names if name}


def differing(lock: Iterable[Locked], components: Iterable[Mapping[str, object]]) -> Iterator[str]:
    """Where a list of components is not what a lock says."""
    locked = {f"{each.name}=={each.version}" for each in lock}
    listed = {f"{canonicalize_name(str(each['name']))}=={each['version']}" for each in components}
    yield from (f"{each}: locked, and not in the SBOM" for each in sorted(locked - listed))
    yield from (f"{each}: in the SBOM, and not locked" for each in sorted(listed - locked))


def problems(root: Path = ROOT) -> list[str]:
    """All that is wrong with pyproject.toml and the locks of a folder, a line each."""
    found: list[str] = []
    locks: dict[str, list[Locked]] = {}
    for path in sorted((root / "requirements").glob("*.lock")):
        locks[path.name], wrong = parsed(path.read_text(encoding="utf-8"))
        found += [f"{path.name}: {each}" for each in wrong]
    client, ours = (
        tomllib.loads((root / path / "pyproject.toml").read_text(encoding="utf-8"))
        for path in ("", "server")
    )
    project, server, dev = ours["project"], locks["server.lock"], locks["dev.lock"]
    own = f"{client['project']['name']}=={client['project']['version']}"
    if own not in project["dependencies"]:
        found.append(f"server/pyproject.toml: does not ask for {own}")
    shipped = [
        *client["project"]["dependencies"],
        *(each for each in project["dependencies"] if each != own),
        *project["optional-dependencies"]["sync"],
    ]
    found += [f"server.lock: {each}" for each in unmet(shipped, server)]
    groups = client["dependency-groups"]
    found += [f"dev.lock: {each}" for each in unmet([*shipped, *groups["dev"]], dev)]
    for name, wanted in (
        ("build.lock", [*client["build-system"]["requires"], *groups["build"]]),
        ("lowest.lock", [*shipped, *groups["test-lowest"]]),
        ("docs.lock", [*client["project"]["dependencies"], *groups["docs"]]),
    ):
        found += [f"{name}: {each}" for each in _not_locked(wanted, locks[name])]
    tried = {(each.name, each.version) for each in dev}
    found += [
        f"server.lock: {each.name}=={each.version}: dev.lock, which is what is tested, has another"
        for each in server
        if (each.name, each.version) not in tried
    ]
    found += [f"server.lock: {each}" for each in unlicensed(server)]
    text = (root / "requirements" / "server.lock").read_text(encoding="utf-8")
    found += differing(server, sbom.components(text))
    return list(dict.fromkeys(found))


def _asked_by(name: str, extra: str) -> Iterator[Requirement]:
    """What an installed package asks for here, or what one of its extras does."""
    for text in metadata.requires(name) or () if _installed(name) else ():
        requirement = Requirement(text)
        marker, requirement.marker = requirement.marker, None
        always = marker is None or marker.evaluate({"extra": ""})
        with_extra = marker is None or marker.evaluate({"extra": extra})
        if always != bool(extra) and with_extra:
            yield requirement


def _installed(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


if __name__ == "__main__":
    found = problems()
    for problem in found:
        sys.stderr.write(f"audit: {problem}\n")
    sys.exit(1 if found else 0)
