"""What docs/cluster-autoscaler.md tells to paste is what the autoscaler and this server take."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import yaml

from tests.deploy.files import service_hosts
from topospread.config.descriptions import SETTINGS
from topospread.config.loading import load_settings

PAGE = (Path(__file__).parents[2] / "docs" / "cluster-autoscaler.md").read_text("utf-8")

CHAINABLE = {"random", "most-pods", "least-waste", "least-nodes", "price", "priority", "grpc"}
"""The expanders that cluster-autoscaler has."""


def block(language):
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return found


def flags(words):
    """The values of --name=value and --name value."""
    found = {}
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word.startswith("--"):
            name, given, value = word.removeprefix("--").partition("=")
            found[name] = value if given else following
    return found


def test_the_autoscaler_gets_every_flag_that_it_requires():
    deployment = yaml.safe_load(block("yaml"))
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    given = flags(container["command"])
    chain = given["expander"].split(",")
    assert chain[0] == "grpc"
    assert set(chain) <= CHAINABLE
    certificate = Path(given["grpc-expander-cert"])
    (mount,) = container["volumeMounts"]
    assert certificate.parent == Path(mount["mountPath"])
    assert mount["name"] in {volume["name"] for volume in pod["volumes"]}
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_the_server_listens_on_the_port_that_the_autoscaler_calls():
    words = shlex.split(block("sh").replace("\\\n", " "))
    assert words[:2] == ["topospread", "serve"]
    given = {name.replace("-", "_"): value for name, value in flags(words[2:]).items()}
    assert set(given) <= set(SETTINGS)
    settings = load_settings(given, {"HOME": "/"})
    assert settings.tls
    assert settings.expander_listen is not None
    command = yaml.safe_load(block("yaml"))["spec"]["template"]["spec"]["containers"][0]["command"]
    host, _, port = flags(command)["grpc-expander-url"].rpartition(":")
    assert host in service_hosts()
    assert settings.expander_listen.port == int(port)
