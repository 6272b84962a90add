"""Args and gates of a configuration file that changes while the server runs.

The other evaluators bring the rules with each request; here they are the server's own.
"""

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import yaml

from tests.conformance.calls import OverGrpc, running_server
from tests.conformance.cases import Decision, Json, decisions, differences
from tests.conformance.objects import gates_of
from tests.conformance.playing import Play, told_otherwise
from tests.conformance.stories import Story, stories
from topospread.app.server import Server

STORIES = [
    story
    for story in stories()
    # Args that are refused never get into force.
    if (story.gates or story.args or story.steps) and "newError" not in story.expect
]
SOME = 25
"""Every so many-th decision is asked; all of them are elsewhere."""


class Reconfigured(OverGrpc):
    """A server whose configuration is written anew whenever a case is judged by other rules."""

    def __init__(self, channel: grpc.Channel, server: Server, file: Path) -> None:
        super().__init__(channel)
        self._server = server
        self._file = file
        self._rules: Json = {}

    def settings(self, case: Decision) -> None:
        """Nothing for the request: the rules go into the file."""
        rules = {"args": case.args, "gates": case.gates}
        if rules != self._rules:
            self._rules = rules
            self._file.write_text(configuration(case))
            assert self._server.reload()


def configuration(case: Decision) -> str:
    """The file that makes a server judge by the case's rules."""
    gates = {
        "apiVersion": "topospread.io/v1",
        "kind": "TopospreadConfiguration",
        "featureGates": gates_of(case.gates),
    }
    scheduler = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"pluginConfig": [{"name": "PodTopologySpread", "args": case.args}]}],
    }
    return yaml.safe_dump_all([gates, scheduler])


@pytest.fixture(scope="module")
def reconfigured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reconfigured]:
    """One server for all stories."""
    file = tmp_path_factory.mktemp("configuration") / "topospread.yaml"
    file.write_text("")
    with (
        running_server(config=str(file)) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        evaluator = Reconfigured(channel, server, file)
        yield evaluator
        evaluator.close()


@pytest.mark.parametrize("told", STORIES, ids=lambda told: told.name)
def test_story(reconfigured: Reconfigured, told: Story) -> None:
    assert told_otherwise(told, reconfigured) == []
    play = Play(told, reconfigured)
    for number, step in enumerate(told.steps, start=1):
        assert play.play(step) == [], f"step {number}: {step}"


def test_decisions_by_the_rules_of_the_file(reconfigured: Reconfigured) -> None:
    accepted = [case for case in decisions() if "newError" not in case.expect]
    for case in accepted[::SOME]:
        assert differences(case.expect, reconfigured.evaluate(case)) == [], case.name
