"""The two distributions: what is in them, and that their sources build them again."""

from __future__ import annotations

import re
import subprocess
import tarfile
from email import message_from_bytes
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from tests.redis_server import ROOT

MODULES = {
    "__init__.py",
    "__main__.py",
    "cache.py",
    "checkpoints.py",
    "errors.py",
    "py.typed",
    "wording.py",
}
PACKAGES = {
    *("access", "app", "calls", "cli", "codec", "config", "generated", "http", "index", "kube"),
    *("kubernetes", "replica", "rpc", "api", "service", "spread", "store", "telemetry"),
}
SHIPPED = {
    "topospread": {"topospread": MODULES | PACKAGES},
    "topospread_client": {
        # And private modules.
        "topospread_client": {"__init__.py", "py.typed", "service-config.json"},
        "topospread_proto": {"__init__.py", "py.typed", "v1", "kubernetes", "options"},
    },
}
"""What may be in each wheel: the top-level packages, and what each has in it."""

KINDS = {".py", ".pyi"}
OTHER_FILES = {
    "py.typed",
    "topospread/store/redis/store.lua",
    "topospread_client/_kubernetes_fields.json",
    "topospread_client/service-config.json",
}

WORKSHOP = {
    *("bench", "benchmark", "benchmarks", "conftest", "examples", "fixtures", "test", "tests"),
    *("tools", "race", "soak", "fake", "mock", "apiserver", "unguarded"),
}
"""Words that no path in a wheel has: what measures and tests does not ship."""

SOURCES = {
    "topospread": {"topospread", "build_hook.py"},
    "topospread_client": {"client", "proto", "docs", "hatch_build.py", "CHANGELOG.md"},
}
"""What is in each sdist, beside what every sdist has."""

BUILDER = ROOT / ".tools" / "build" / "bin" / "python"


def built(source, out, *what):
    command = [BUILDER, "-m", "build", "--no-isolation", *what, "--outdir", out, source]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


class Made(NamedTuple):
    """A distribution: its wheel, the wheel that its sdist makes, and where the sdist is."""

    name: str
    wheel: ZipFile
    again: ZipFile
    sources: Path


@pytest.fixture(scope="module", params=[("topospread_client", ""), ("topospread", "server")])
def made(request, tmp_path_factory):
    """A wheel as the checkout makes it, and one as its sdist does."""
    name, folder = request.param
    out = tmp_path_factory.mktemp(name)
    built(ROOT / folder, out / "direct", "--wheel")
    built(ROOT / folder, out / "sources", "--sdist")
    (archive,) = (out / "sources").iterdir()
    with tarfile.open(archive) as sources:
        # The oldest Pythons have no filters, newer ones demand one.
        sources.extraction_filter = getattr(tarfile, "data_filter", None)
        sources.extractall(out / "sources")
    (unpacked,) = (each for each in (out / "sources").iterdir() if each.is_dir())
    built(unpacked, out / "again", "--wheel")
    (direct,), (again,) = ((out / side).iterdir() for side in ("direct", "again"))
    with ZipFile(direct) as wheel, ZipFile(again) as wheel_of_sources:
        yield Made(name, wheel, wheel_of_sources, out / "sources")


def metadata(wheel):
    (path,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return message_from_bytes(wheel.read(path))


def test_wheel_has_its_packages_dependencies_and_scripts(made):
    name, wheel = made.name, made.wheel
    files = [path for path in wheel.namelist() if ".dist-info/" not in path]
    scripts = [path for path in wheel.namelist() if path.endswith("entry_points.txt")]
    needed = {Requirement(each).name for each in metadata(wheel).get_all("Requires-Dist")}
    if name == "topospread":
        assert {path.split("/")[0] for path in files} == {"topospread"}
        assert len(scripts) == 1
        assert {"topospread-client", "redis", "click"} <= needed
        assert "topospread/generated/internal/v1/frames_pb2.py" in files
        assert "topospread/generated/cluster_autoscaler/expander_pb2_grpc.py" in files
    else:
        assert {path.split("/")[0] for path in files} == {"topospread_client", "topospread_proto"}
        assert not scripts
        assert needed == {"googleapis-common-protos", "grpcio", "protobuf"}
        assert "topospread_proto/v1/decision_service_pb2_grpc.pyi" in files
        # How a server stores things, and the autoscaler's protocol, are nothing that callers need.
        assert not [path for path in files if "internal" in path or "expander" in path]
    assert f"{files[0].split('/')[0]}/py.typed" in files
    assert any(path.endswith(".dist-info/licenses/LICENSE") for path in wheel.namelist())


def outside_dist_info(wheel):
    paths = [PurePosixPath(path) for path in wheel.namelist()]
    return [path for path in paths if not path.parts[0].endswith(".dist-info")]


def test_wheel_has_the_named_packages_and_nothing_else(made):
    name, wheel = made.name, made.wheel
    found: dict[str, set[str]] = {}
    for package, entry, *_ in (path.parts for path in outside_dist_info(wheel)):
        private = package == "topospread_client" and entry.startswith("_")
        if entry == "__init__.py" or not private:
            found.setdefault(package, set()).add(entry)
    assert found == SHIPPED[name]


def test_wheel_has_modules_and_the_named_other_files(made):
    wheel = made.wheel
    other = [path for path in outside_dist_info(wheel) if path.suffix not in KINDS]
    assert [str(p) for p in other if not {p.name, str(p)} & OTHER_FILES] == []


def test_wheel_has_nothing_that_measures_or_tests(made):
    wheel = made.wheel
    words = {p: set(re.split(r"[/_.]", str(p))) for p in outside_dist_info(wheel)}
    assert {str(path): found & WORKSHOP for path, found in words.items() if found & WORKSHOP} == {}


def test_wheel_metadata_has_the_usual_files(made):
    wheel = made.wheel
    paths = [PurePosixPath(path) for path in wheel.namelist() if ".dist-info/" in path]
    usual = {"METADATA", "RECORD", "WHEEL", "LICENSE", "entry_points.txt"}
    assert {path.name for path in paths} <= usual


def test_sdist_has_the_named_sources(made):
    name = made.name
    always = {"PKG-INFO", "pyproject.toml", "README.md", "LICENSE", ".gitignore"}
    (archive,) = made.sources.glob("*.tar.gz")
    with tarfile.open(archive) as sources:
        parts = [PurePosixPath(each).parts for each in sources.getnames()]
    assert {each[1] for each in parts if len(each) > 1} - always == SOURCES[name]
    words = {word for each in parts for part in each[1:] for word in re.split(r"[_.]", part)}
    assert words & WORKSHOP == set()


def test_sdist_makes_the_same_wheel(made):
    assert sorted(made.wheel.namelist()) == sorted(made.again.namelist())


def test_both_distributions_have_one_licence():
    assert (ROOT / "server" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
