"""What writes in steps and ends too early says how much was written, and how to go on."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import Any

import grpc
import pytest

from tests.cli.processes import TOPOSPREAD, environment
from tests.client.scripted import Failure, scripted
from topospread.cli.render.writes import write_progress
from topospread_client._methods import METHODS
from topospread_proto.v1.cluster_state_service_pb2 import (
    OBJECT_OUTCOME_CREATED,
    ApplyObjectsResponse,
    DeleteObjectsResponse,
    ObjectResult,
)
from topospread_proto.v1.common_pb2 import KIND_NODE

NODES = json.dumps(
    {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{number}"}}
            for number in range(1200)
        ],
    }
)
CREATED = ObjectResult(kind=KIND_NODE, outcome=OBJECT_OUTCOME_CREATED)
WRITTEN: Any = {
    "apply": (METHODS["ApplyObjects"], ApplyObjectsResponse(results=[CREATED] * 500)),
    "delete": (METHODS["DeleteObjects"], DeleteObjectsResponse(results=[CREATED] * 500)),
}


def ended_by(number, verb, *answers):
    """The verb as a process; at its second step it gets a signal, if any, and `answers`."""
    rpc, step = WRITTEN[verb]
    with scripted() as script:
        command = [*TOPOSPREAD, verb, "-f", "-", "--address", script.address]
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        ) as process:

            def hold(context):
                process.send_signal(number)
                process.wait(60)
                return step

            script.answer(rpc, step, *(answers or [hold]))
            _, said = process.communicate(NODES)
    return process.returncode, said.strip().splitlines()


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
@pytest.mark.parametrize(("verb", "done"), [("apply", "written"), ("delete", "deleted")])
def test_signal_prints_what_was_written(number, code, word, verb, done):
    ended, said = ended_by(number, verb)
    assert ended == code
    assert said[0] == (
        f"500 of 1200 objects are {done}, of those that were just sent it is not known,"
        " the others are not: the same command does the rest"
    )
    assert said[-1] == f"topospread: {word}"
    assert "Traceback" not in "".join(said)


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, 2, "the others are not: put right what is wrong"),
        (grpc.StatusCode.INTERNAL, 3, "of those that were just sent it is not known"),
    ],
)
def test_failed_step_prints_what_was_written(status, code, words):
    ended, said = ended_by(0, "apply", Failure(status, "no"))
    assert ended == code
    assert said[0].startswith("500 of 1200 objects are written, ")
    assert words in said[0]


def test_ignored_sigterm_stays_ignored():
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with write_progress("applying", "written"):
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
