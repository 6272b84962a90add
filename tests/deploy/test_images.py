"""The Dockerfiles: pinned, without root, and copying what exists and is let through."""

from __future__ import annotations

import fnmatch
import json
import re

import pytest

from tests.deploy.files import FOLDER, ROOT, instructions, parsed
from topospread.config.settings import ServerSettings

SERVER = ROOT / "Dockerfile"
LOAD = FOLDER / "load" / "Dockerfile"


def arguments_of(dockerfile, word):
    return [rest for each, rest in instructions(dockerfile) if each == word]


def last_stage(dockerfile):
    found = instructions(dockerfile)
    start = max(place for place, (word, _) in enumerate(found) if word == "FROM")
    return found[start:]


@pytest.mark.parametrize("dockerfile", [SERVER, LOAD], ids=["server", "load"])
def test_base_images_have_exact_versions(dockerfile):
    values = dict(rest.split("=") for rest in arguments_of(dockerfile, "ARG"))
    images = [rest.split()[0] for rest in arguments_of(dockerfile, "FROM")]
    assert images
    for image in images:
        named = re.sub(r"\$\{(\w+)\}", lambda found: values[found[1]], image)
        assert named == "scratch" or re.search(r":\d+\.\d+\.\d+-[\w-]+$", named), named


@pytest.mark.parametrize("dockerfile", [SERVER, LOAD], ids=["server", "load"])
def test_images_run_without_root_and_without_a_shell(dockerfile):
    stage = last_stage(dockerfile)
    users = [rest for word, rest in stage if word == "USER"]
    assert users == ["65532:65532"]
    assert not [rest for word, rest in stage if word == "RUN"]
    for word, rest in stage:
        if word in {"ENTRYPOINT", "CMD"}:
            assert json.loads(rest)
        if word == "HEALTHCHECK":
            assert json.loads(rest.partition("CMD ")[2])[0] == "python"


def test_every_source_exists_and_docker_is_given_it():
    sources = [
        source
        for rest in arguments_of(SERVER, "COPY")
        if not rest.startswith("--from=")
        for source in rest.split()[:-1]
    ]
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    let_through = {line[1:] for line in ignored if line.startswith("!")}
    assert len(sources) >= 5
    for source in sources:
        assert (ROOT / source).exists(), source
        assert source.rstrip("/") in let_through
    assert let_through == {source.rstrip("/") for source in sources}


def test_generated_modules_are_made_in_the_image_and_never_taken_along():
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    patterns = [line.removeprefix("**/") for line in ignored if line.startswith("**/")]
    for name in ("common_pb2.py", "common_pb2.pyi", "decision_service_pb2_grpc.py", "__pycache__"):
        assert any(fnmatch.fnmatch(name, pattern) for pattern in patterns), name


def test_all_packages_are_locked():
    commands = " ".join(arguments_of(SERVER, "RUN"))
    installs = re.findall(r"\binstall\b((?:(?!&&).)*)", commands.replace("install -d", ""))
    assert len(installs) == 3
    for options in installs:
        assert "--require-hashes" in options or "--no-deps /wheels/" in options
    assert "--no-isolation" in commands


def test_the_ports_are_those_that_a_server_listens_on_by_default():
    ports = " ".join(arguments_of(SERVER, "EXPOSE")).split()
    defaults = ServerSettings()
    assert defaults.http is not None
    assert ports == [str(defaults.listen.port), str(defaults.http.port)]
    (health,) = arguments_of(SERVER, "HEALTHCHECK")
    assert f"'127.0.0.1', {defaults.http.port}," in health


def test_the_load_generator_is_the_one_that_the_documents_name():
    (line,) = [rest for rest in arguments_of(LOAD, "RUN") if "ghz" in rest]
    version = line.rpartition("cmd/ghz@v")[2]
    image = parsed(ROOT / "docker-compose.yml")["services"]["ghz"]["image"]
    assert image.endswith(f":{version}")


@pytest.mark.parametrize("dockerfile", [SERVER, LOAD], ids=["server", "load"])
def test_nothing_is_fetched_or_kept_that_is_not_named(dockerfile):
    """No ADD, which fetches addresses; no secrets among arguments; the last stage only copies."""
    assert not arguments_of(dockerfile, "ADD")
    names = " ".join([*arguments_of(dockerfile, "ARG"), *arguments_of(dockerfile, "ENV")])
    assert not re.search(r"TOKEN|SECRET|PASSWORD|KEY", names, re.IGNORECASE)
    copied = [rest for word, rest in last_stage(dockerfile) if word == "COPY"]
    assert copied
    assert all(rest.startswith("--from=build ") for rest in copied)


def test_the_server_writes_to_its_state_alone():
    stage = last_stage(SERVER)
    assert [rest for word, rest in stage if word == "VOLUME"] == ["/var/lib/topospread"]
    owned = [rest for word, rest in stage if word == "COPY" and "--chown" in rest]
    assert owned == ["--from=build --chown=65532:65532 /state /var/lib/topospread"]
