"""What docs/kube-scheduler.md tells to paste is what kube-scheduler and this server take."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import yaml

from tests.deploy.files import service_hosts
from tests.http.extender_client import Scheduler, node, spreading
from tests.servers import served
from topospread.cli.commands.serve import command as serve_command
from topospread.codec.scheduler_config import read_rules
from topospread.config.loading import load_settings
from topospread.http.extender import TIMEOUT, Verb, parse_target

PAGE = (Path(__file__).parents[2] / "docs" / "kube-scheduler.md").read_text("utf-8")
CONFIGURATIONS = {
    match[1]: match[2] for match in re.finditer(r"```yaml\n# (\w+)\n(.*?)```", PAGE, re.DOTALL)
}

EXTENDER_FIELDS = {
    *("urlPrefix", "filterVerb", "preemptVerb", "prioritizeVerb", "weight", "bindVerb"),
    *("enableHTTPS", "tlsConfig", "httpTimeout", "nodeCacheCapable", "managedResources"),
    "ignorable",
}
TLS_FIELDS = {
    *("insecure", "serverName", "certFile", "keyFile", "caFile"),
    *("certData", "keyData", "caData"),
}
VERBS = ("filterVerb", "prioritizeVerb", "preemptVerb")


def extender_of(name):
    (extender,) = yaml.safe_load(CONFIGURATIONS[name])["extenders"]
    return extender


def target(extender, verb):
    """What kube-scheduler makes of prefix and verb, as this server reads it."""
    url = urlsplit(extender["urlPrefix"].rstrip("/") + "/" + extender[verb])
    return parse_target(url.path, url.query.encode(), places=False)


def test_there_is_one_configuration_a_mode():
    assert set(CONFIGURATIONS) == {"filter", "place"}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_kube_scheduler_takes_it(name):
    """By the rules of its own validation."""
    whole = yaml.safe_load(CONFIGURATIONS[name])
    assert set(whole) <= {
        *("apiVersion", "kind", "percentageOfNodesToScore", "profiles", "extenders")
    }
    assert 0 <= whole["percentageOfNodesToScore"] <= 100
    extender = extender_of(name)
    assert set(extender) <= EXTENDER_FIELDS
    assert set(extender["tlsConfig"]) <= TLS_FIELDS
    if "prioritizeVerb" in extender:
        assert extender["weight"] > 0


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_this_server_takes_it(name):
    rules = read_rules(CONFIGURATIONS[name], name, {})
    assert set(rules.profiles) == {"default-scheduler"}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_its_urls_are_calls(name):
    extender = extender_of(name)
    assert target(extender, "filterVerb").verb is Verb.FILTER
    assert target(extender, "filterVerb").places is (name == "place")
    for verb in VERBS[1:]:
        if verb in extender:
            assert target(extender, verb).verb.value == extender[verb]


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_configurations_name_a_service_and_the_port_that_is_served(name):
    (block,) = re.findall(r"```sh\n(topospread serve .*?)```", PAGE, re.DOTALL)
    words = shlex.split(block)
    settings = load_settings(serve_command.make_context("serve", words[2:]).params, {"HOME": "/"})
    assert settings.tls
    assert settings.http is not None
    assert not settings.http.loopback
    url = urlsplit(extender_of(name)["urlPrefix"])
    assert (url.scheme, url.port) == ("https", settings.http.port)
    assert url.hostname in service_hosts()


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_scheduler_waits_longer_than_the_server(name):
    assert float(extender_of(name)["httpTimeout"].removesuffix("s")) > TIMEOUT


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_scheduler_so_configured_is_answered(name):
    extender = extender_of(name)
    with served(http="127.0.0.1:0") as server, Scheduler(server) as scheduler:
        scheduler.write(node("a", zone="a"), node("b", zone="b"))
        for verb in VERBS:
            if verb not in extender:
                continue
            url = urlsplit(extender["urlPrefix"].rstrip("/") + "/" + extender[verb])
            args = {
                "Pod": spreading("p"),
                "NodeNames": ["a", "b"],
                "NodeNameToMetaVictims": {"a": {"Pods": [], "NumPDBViolations": 0}},
            }
            answer = scheduler.http.post(url.path, json=args)
            assert answer.status_code == httpx.codes.OK
            assert answer.json()
