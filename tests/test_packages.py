"""The two distributions: what is in them, and that their sources build them again."""

from __future__ import annotations

import subprocess
import tarfile
from email import message_from_bytes
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from tests.redis_server import ROOT

BUILDER = ROOT / ".tools" / "build" / "bin" / "python"


def built(source, out, *what):
    command = [BUILDER, "-m", "build", "--no-isolation", *what, "--outdir", out, source]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


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
    wheels = [ZipFile(path) for side in ("direct", "again") for path in (out / side).iterdir()]
    yield name, *wheels
    for wheel in wheels:
        wheel.close()


def metadata(wheel):
    (path,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return message_from_bytes(wheel.read(path))


def test_what_is_in_it(made):
    name, wheel, _ = made
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


def test_its_sources_make_the_same(made):
    _, direct, again = made
    assert sorted(direct.namelist()) == sorted(again.namelist())


def test_both_have_one_licence():
    assert (ROOT / "server" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
