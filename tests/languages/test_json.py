"""JSON of every message of the API is the same in Python, Go, TypeScript and Java, and reads back.

Each language has generated its own modules from the `.proto` files, with its own library's JSON.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf import json_format

from tests.errors.error_status import REASONS
from tests.languages.instances import DETAILS, instances, messages
from tests.servers import Peer, served, two_zones
from tests.waiting import PATIENCE
from topospread_proto.v1.common_pb2 import PodSource
from topospread_proto.v1.decision_service_pb2 import BatchEvaluatePodsRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.message import Message


def as_json(message: Message) -> Any:
    # Sorted, because what reads a map into an Any's bytes has them in the order of the text.
    return json.loads(json_format.MessageToJson(message, sort_keys=True))


def check(program: Sequence[str]) -> None:
    """Compare what a program makes of Python's bytes and of Python's JSON with Python's own."""
    samples = [
        (f"{each.full_name}: {name}", message)
        for each in messages()
        for name, message in instances(each)
    ]
    lines = [
        {
            "type": message.DESCRIPTOR.full_name,
            "binary": base64.b64encode(message.SerializeToString(deterministic=True)).decode(),
            "json": as_json(message),
        }
        for _, message in samples
    ]
    asked = "".join(json.dumps(line) + "\n" for line in lines)

    ran = subprocess.run(program, input=asked, capture_output=True, text=True)

    assert ran.returncode == 0, ran.stderr
    answers = [json.loads(line) for line in ran.stdout.split("\n") if line]
    wrong = []
    for (name, message), line, answer in zip(samples, lines, answers, strict=True):
        read = type(message)()
        read.ParseFromString(base64.b64decode(answer.get("binary") or ""))
        if "error" in answer or answer["json"] != line["json"] or read != message:
            wrong.append(f"{name}\n  Python: {line}\n  here:   {answer}\n  read:   {as_json(read)}")
    if wrong:
        pytest.fail("\n".join(wrong[:5]), pytrace=False)


def test_go_writes_and_reads_the_same_json(go_programs):
    check([str(go_programs / "convert")])


def test_typescript_writes_and_reads_the_same_json(typescript_program):
    check(typescript_program)


@pytest.mark.long
def test_java_writes_and_reads_the_same_json(java_program):
    check(java_program)


OF_A_SERVICE_ALONE = """
import sys
from google.protobuf.json_format import MessageToJson
from topospread_proto.v1.decision_service_pb2 import BatchEvaluatePodsResponse
print(MessageToJson(BatchEvaluatePodsResponse.FromString(sys.stdin.buffer.read())))
"""


def test_errors_in_answers_are_json_for_programs_that_know_one_service():
    """In a process of its own, which has imported nothing for what is packed in a status."""
    with served() as server, Peer(server.address) as peer:
        peer.apply(*two_zones())
        asked = BatchEvaluatePodsRequest(pods=[PodSource()])
        answer: Any = peer.engine.BatchEvaluatePods(asked, timeout=PATIENCE)
    for kind in DETAILS:
        answer.results.add().error.details.add().Pack(kind())

    ran = subprocess.run(
        [sys.executable, "-c", OF_A_SERVICE_ALONE],
        input=answer.SerializeToString(),
        capture_output=True,
    )

    assert ran.returncode == 0, ran.stderr.decode()
    first, *others = [each["error"]["details"] for each in json.loads(ran.stdout)["results"]]
    assert [each.get("reason") for each in first] == ["INVALID_FIELDS", None]
    assert len(others) == len(DETAILS)


def test_all_details_of_errors_are_known():
    used = {"ErrorInfo"}.union(*(each.details for each in REASONS.values()))
    assert {each.DESCRIPTOR.name for each in DETAILS} == used
