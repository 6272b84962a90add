"""The compose file: valid, pinned, without secrets, and true to what it names."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib

import pytest
from google.protobuf.json_format import Parse

from tests.deploy.files import COMPOSE, FOLDER, ROOT, binds, health_test, services
from topospread.cli.commands.apply import command as apply_command
from topospread.cli.commands.serve import command as serve_command
from topospread.cli.options import ClientOptions
from topospread.config.loading import load_settings
from topospread.errors import ConfigError
from topospread_proto.v1 import decision_service_pb2 as engine

SERVICES = services()
SERVERS = {name: each for name, each in SERVICES.items() if name.startswith("topospread-")}
ONE_SHOT = {"loader", "ghz"}


def schema_check(path):
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    return subprocess.run([*command, str(path)], capture_output=True, text=True, check=False)


def test_the_file_is_valid_by_the_compose_specification():
    found = schema_check(COMPOSE)
    assert found.returncode == 0, found.stdout


def test_the_specification_is_really_asked(tmp_path):
    broken = tmp_path / "docker-compose.yml"
    broken.write_text(COMPOSE.read_text().replace("healthcheck:", "healthchek:", 1))
    found = schema_check(broken)
    assert found.returncode == 1
    assert "healthchek" in found.stdout


@pytest.mark.parametrize("name", SERVICES)
def test_every_image_has_an_exact_version(name):
    image, _, tag = SERVICES[name]["image"].partition(":")
    assert image
    assert re.match(r"v?\d+\.\d+\.\d+", tag), tag


def test_our_own_image_has_the_version_that_is_built():
    project = tomllib.loads((ROOT / "server" / "pyproject.toml").read_text())["project"]
    ours = {each["image"] for each in SERVICES.values() if each["image"].startswith("topospread:")}
    assert ours == {f"topospread:{project['version']}"}


@pytest.mark.parametrize("name", SERVICES)
def test_mounts_exist_and_are_read_only(name):
    for source, options in binds(SERVICES[name]):
        assert (ROOT / source).exists(), source
        assert options == "ro", source


@pytest.mark.parametrize("name", SERVICES)
def test_built_images_have_a_dockerfile(name):
    if "build" in SERVICES[name]:
        assert (ROOT / SERVICES[name]["build"]["context"] / "Dockerfile").is_file()


@pytest.mark.parametrize("name", SERVICES)
def test_dependencies_exist_and_can_be_waited_for(name):
    for other, how in SERVICES[name].get("depends_on", {}).items():
        if how["condition"] == "service_healthy":
            assert health_test(other, SERVICES[other]), other
        else:
            assert how["condition"] == "service_completed_successfully"
            assert other in ONE_SHOT


def test_lasting_services_but_one_have_health_checks():
    silent = {name for name, each in SERVICES.items() if not health_test(name, each)}
    assert silent - ONE_SHOT == {"otel-collector"}


@pytest.mark.parametrize("name", SERVICES)
def test_only_this_machine_reaches_what_is_published(name):
    for port in SERVICES[name].get("ports", ()):
        assert port.startswith("127.0.0.1:"), port
    if SERVICES[name].get("ports"):
        assert "published" in SERVICES[name]["networks"]
    else:
        assert SERVICES[name]["networks"] == ["private"]


def test_the_file_holds_no_secret():
    text = COMPOSE.read_text()
    assert not re.search(r"passw|secret:|token|api_?key|BEGIN |://[^/\s]+@", text, re.IGNORECASE)


def test_there_are_two_servers_and_load_only_on_request():
    assert len(SERVERS) == 2
    assert SERVICES["ghz"]["profiles"] == ["load"]
    assert not any("profiles" in each for name, each in SERVICES.items() if name != "ghz")


# --------------------------------------------------------------------------------------------------
# what is given to our own program


@pytest.mark.parametrize("name", SERVERS)
def test_servers_are_given_settings_that_hold_together(name):
    verb, *arguments = SERVERS[name]["command"]
    assert verb == "serve"
    context = serve_command.make_context("serve", list(arguments))
    settings = load_settings(context.params, SERVERS[name]["environment"])
    assert settings.insecure
    assert str(settings.listen) == "0.0.0.0:7946"
    assert str(settings.http) == "0.0.0.0:7947"
    assert settings.store == "redis://redis:6379/0"
    assert SERVICES["redis"]["image"].startswith("redis:")


def test_a_server_without_insecure_would_not_start():
    arguments = [each for each in SERVERS["topospread-1"]["command"][1:] if each != "--insecure"]
    context = serve_command.make_context("serve", arguments)
    with pytest.raises(ConfigError, match="--insecure"):
        load_settings(context.params, {})


def test_servers_have_longer_to_stop_than_they_ask_for():
    seconds = int(SERVERS["topospread-1"]["stop_grace_period"].removesuffix("s"))
    arguments = SERVERS["topospread-1"]["command"][1:]
    settings = load_settings(serve_command.make_context("serve", arguments).params, {})
    assert seconds > settings.shutdown_delay + settings.shutdown_grace_period


def test_redis_is_durable_and_never_evicts():
    command = SERVICES["redis"]["command"]
    flags = dict(zip(command[1::2], command[2::2], strict=True))
    assert flags["--appendonly"] == "yes"
    assert flags["--maxmemory-policy"] == "noeviction"


def test_the_loader_applies_the_sample_cluster_through_the_balancer():
    verb, *arguments = SERVICES["loader"]["command"]
    assert verb == "apply"
    context = apply_command.make_context("apply", list(arguments))
    assert context.params["paths"] == ("/cluster",)
    options = context.find_object(ClientOptions)
    assert options is not None
    assert options.insecure
    assert options.address == "balancer:7946"
    assert {source for source, _ in binds(SERVICES["loader"])} == {"./examples/cluster"}


def test_ghz_asks_for_a_call_that_exists_with_data_that_fits():
    command = SERVICES["ghz"]["command"]
    flags = dict(each.removeprefix("--").split("=") for each in command if "=" in each)
    service, _, method = flags["call"].rpartition(".")
    assert service == "topospread.v1.DecisionService"
    found = engine.DESCRIPTOR.services_by_name["DecisionService"].methods_by_name[method]
    assert found.input_type is engine.EvaluatePodRequest.DESCRIPTOR
    text = (FOLDER / "load" / "evaluate.json").read_text()
    assert Parse(text, engine.EvaluatePodRequest()).pod.object.metadata.namespace == "shop"
    assert command[-1] == "balancer:7946"


HARDENED = {*SERVERS, *ONE_SHOT, "balancer", "otel-collector"}
"""All but those whose images are made to write to their own file systems."""


@pytest.mark.parametrize("name", sorted(HARDENED))
def test_services_that_need_no_rights_have_none(name):
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "user" not in service or not service["user"].startswith(("0", "root"))


@pytest.mark.parametrize("name", SERVICES)
def test_nothing_is_given_more_of_the_machine_than_others_have(name):
    more = {"privileged", "cap_add", "devices", "network_mode", "pid", "ipc", "userns_mode"}
    assert not more & set(SERVICES[name])
    # Of this repository, or volumes by name: not the engine's socket, and no folder of the host.
    for volume in SERVICES[name].get("volumes", ()):
        assert not volume.startswith(("/", "~", ".."))


@pytest.mark.parametrize("name", SERVICES)
def test_no_command_of_it_needs_a_shell(name):
    service = SERVICES[name]
    for command in (service.get("command", []), service.get("entrypoint", [])):
        assert isinstance(command, list)
    probe = service.get("healthcheck", {}).get("test", ["CMD"])
    assert probe[0] == "CMD"
