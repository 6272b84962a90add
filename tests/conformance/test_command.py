"""`python -m tests.conformance`: agrees with what was recorded, and notices what differs."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import CommandResult
from tests.cli.processes import environment
from tests.conformance.__main__ import command as conformance
from tests.conformance.cases import compact
from tests.redis_server import ROOT
from tests.servers import served
from topospread.cli.main import run
from topospread_client import Client

RECORDED = Path(__file__).parent


def lines_of(name):
    with gzip.open(RECORDED / name, "rt") as file:
        return file.read().splitlines()


DECISIONS = [json.loads(line) for line in lines_of("decisions.jsonl.gz")]


def by_name(name):
    return next(case for case in DECISIONS if case["name"] == name)


def summary(said):
    return said.lines[-1]


@pytest.fixture
def recording(tmp_path):
    """Writes cases, one a line."""

    def write(*cases, name="cases.jsonl"):
        path = tmp_path / name
        path.write_text("".join(json.dumps(case) + "\n" for case in cases))
        return path

    return write


@pytest.fixture
def compare(capsys):
    """The command as a person would type it."""

    def compared(*arguments):
        capsys.readouterr()
        code = run([str(each) for each in arguments], conformance)
        return CommandResult(code, *capsys.readouterr())

    return compared


def test_a_server_and_a_store_are_not_both_named(compare):
    said = compare("x", "--store", "memory:", "--address", "h:1")
    assert (said.code, "--store is for a temporary server" in said.err) == (2, True)


def test_a_slice_of_all_decisions_passes(compare, recording):
    said = compare(recording(*DECISIONS[::25]))
    assert (said.code, summary(said)) == (0, f"{len(DECISIONS[::25])} passed, 0 failed")
    assert said.lines == [summary(said)], "what passes is only counted"


@pytest.mark.parametrize("jobs", ["1", "4"])
def test_cases_with_what_ifs_args_and_gates_pass(compare, recording, jobs):
    with_ops = [case for case in DECISIONS if case.get("ops")][::8]
    with_gates = [case for case in DECISIONS if case.get("gates")][::8]
    refused = [case for case in DECISIONS if "newError" in case["expect"]]
    chosen = [case for case in DECISIONS if "filterNodes" in case][::8]
    cases = [*with_ops, *with_gates, *refused, *chosen]
    said = compare("--jobs", jobs, recording(*cases))
    assert (said.code, summary(said)) == (0, f"{len(cases)} passed, 0 failed")


@pytest.mark.parametrize("name", ["validation", "args", "fitcounts"])
def test_other_recordings_pass_whole(compare, name):
    said = compare(RECORDED / f"{name}.jsonl.gz")
    count = len(lines_of(f"{name}.jsonl.gz"))
    assert (said.code, summary(said)) == (0, f"{count} passed, 0 failed")


def test_messages_find_their_cases_beside_them(compare, tmp_path):
    here = [
        line
        for line in lines_of("fiterrors.jsonl.gz")
        if not json.loads(line)["case"].startswith("big-")
    ]
    (tmp_path / "fiterrors.jsonl").write_text("\n".join(here))
    missing = compare(tmp_path / "fiterrors.jsonl")
    assert missing.code == 2
    assert "name its file with --cases" in missing.err
    (tmp_path / "decisions.jsonl.gz").symlink_to(RECORDED / "decisions.jsonl.gz")
    said = compare(tmp_path / "fiterrors.jsonl")
    assert (said.code, summary(said)) == (0, f"{len(here)} passed, 0 failed")


def test_a_large_cluster_passes_with_its_hashes(compare):
    said = compare(RECORDED / "clusters" / "big-1000n-10000p.json.gz")
    assert (said.code, summary(said)) == (0, "20 passed, 0 failed")
    assert said.lines[0].startswith("passed big-1000n-10000p/incoming-00 hard-zone: 251 Success")


def altered(name, change):
    case = json.loads(json.dumps(by_name(name)))
    change(case["expect"])
    return case


def set_code(expect):
    expect["preFilter"]["code"] = "Skip"


def set_verdict(expect):
    node = next(iter(expect["filter"]))
    expect["filter"][node] = {"code": "Unschedulable", "reasons": ["another reason"]}


def lose_node(expect):
    del expect["filter"][next(iter(expect["filter"]))]


def invent_node(expect):
    expect["filter"]["missing"] = {"code": "Success", "reasons": []}


def set_raw(expect):
    expect["score"][next(iter(expect["score"]))] += 1


def set_normalized(expect):
    expect["normalized"][next(iter(expect["normalized"]))] -= 1


def refuse(expect):
    expect.clear()
    expect["newError"] = "some error"


def set_op(expect):
    expect["ops"][0]["code"] = "Error"


SCORED = next(
    case["name"]
    for case in DECISIONS
    if {"filter", "score"} <= case["expect"].keys() and "filterNodes" not in case
)
WITH_OPS = next(case["name"] for case in DECISIONS if "ops" in case["expect"])


def test_a_cluster_with_other_hashes_fails(compare, recording):
    case = by_name(SCORED)
    right = compact(case["expect"])
    wrong = ({"filterSha256": "0" * 64}, {"scoreDistinct": right["scoreDistinct"] + 1})
    incoming = [
        {
            "name": next(iter(each)),
            "pod": case["pod"],
            "args": case["args"],
            "compact": right | each,
        }
        for each in wrong
    ]
    said = compare(recording({"name": "small", "cluster": case["cluster"], "incoming": incoming}))
    assert (said.code, summary(said)) == (1, "0 passed, 2 failed")
    assert "    filterSha256" in said.lines
    assert "    scoreDistinct" in said.lines


CHANGES = {
    "code": (SCORED, set_code, "preFilter"),
    "verdict": (SCORED, set_verdict, "filter["),
    "missing node": (SCORED, lose_node, "filter["),
    "unknown node": (SCORED, invent_node, "filter[missing]"),
    "raw score": (SCORED, set_raw, "score["),
    "normalized score": (SCORED, set_normalized, "normalized["),
    "accepted args": (SCORED, refuse, "newError"),
    "status of an op": (WITH_OPS, set_op, "ops[0]"),
}


@pytest.mark.parametrize(("name", "change", "member"), CHANGES.values(), ids=CHANGES)
def test_every_kind_of_difference_is_seen_and_can_be_pasted(
    compare, recording, name, change, member
):
    path = recording(by_name(name), altered(name, change))
    said = compare(path)
    assert (said.code, summary(said)) == (1, "1 passed, 1 failed")
    assert said.lines[0] == f"differs {name} ({path}:2)"
    assert said.lines[1].startswith(f"    {member}")
    assert said.lines[2].startswith("        recorded ")
    assert said.lines[3].startswith("        answered ")
    assert f"    again: python -m tests.conformance {path} --case {name}" in said.lines


def test_the_texts_of_errors_may_differ(compare, recording):
    failing = next(
        case for case in DECISIONS if case["expect"].get("preFilter", {}).get("code") == "Error"
    )
    case = json.loads(json.dumps(failing))
    case["expect"]["preFilter"]["reasons"] = ["worded otherwise"]
    assert summary(compare(recording(case))) == "1 passed, 0 failed"


def test_wrong_refusals_are_differences(compare, recording):
    validation = [json.loads(line) for line in lines_of("validation.jsonl.gz")]
    wrong = next(case for case in validation if len(case["expect"]) == 1 and "message" in case)
    valid = next(case for case in validation if not case["expect"])
    other = json.loads(json.dumps(wrong))
    other["expect"][0]["detail"] = "must be lovely"
    message = {**wrong, "message": wrong["message"] + "!"}
    accepted = {**valid, "expect": wrong["expect"], "message": wrong["message"]}
    refused = {**wrong, "expect": []}
    said = compare(recording(wrong, other, message, accepted, refused))
    assert (said.code, summary(said)) == (1, "1 passed, 4 failed")
    args = [json.loads(line) for line in lines_of("args.jsonl.gz")]
    bad = next(case for case in args if case["expect"])
    said = compare(recording({**bad, "expect": []}, {**args[0], "expect": [bad["expect"][0]]}))
    assert (said.code, summary(said)) == (1, "0 passed, 2 failed")


def test_wrong_messages_are_differences(compare, recording):
    counts = json.loads(lines_of("fitcounts.jsonl.gz")[0])
    said = compare(recording({**counts, "message": "0/1 nodes are happy."}))
    assert (said.code, summary(said)) == (1, "0 passed, 1 failed")
    error = json.loads(lines_of("fiterrors.jsonl.gz")[2])
    path = recording({**error, "message": "nowhere"}, {**error, "reason": "Tired"})
    said = compare(path, "--cases", RECORDED / "decisions.jsonl.gz")
    assert (said.code, summary(said)) == (1, "0 passed, 2 failed")


def test_one_case_may_be_asked_alone(compare, recording):
    path = recording(*DECISIONS[:5])
    said = compare(path, "--case", DECISIONS[3]["name"])
    assert summary(said) == "1 passed, 0 failed"
    unknown = compare(path, "--case", "missing")
    assert (unknown.code, unknown.out) == (2, "")
    assert "no such case" in unknown.err


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ('{"pod": {}}', "no recorded case: a case has one of these sets of members"),
        (json.dumps(DECISIONS[0]) + "\n{", "odd.jsonl:2: not JSON"),
        ("[1]", "no recorded case"),
        ("", "no case in these files"),
    ],
)
def test_files_without_cases_are_reported(compare, tmp_path, content, complaint):
    path = tmp_path / "odd.jsonl"
    path.write_text(content)
    said = compare(path)
    assert said.code == 2
    assert complaint in said.err
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"{}" * 1000)[:-20])
    assert compare(tmp_path / "cut.gz").code == 2


def test_a_running_server_is_asked_and_left_as_it_was(compare, recording):
    with served() as server, Client(server.address) as client:
        said = compare(recording(*DECISIONS[:20]), "--address", server.address)
        assert summary(said) == "20 passed, 0 failed"
        assert not [c for c in client.list_clusters() if c.name.startswith("conf-")]


def test_a_store_may_be_named(compare, recording, tmp_path):
    store = f"sqlite:///{tmp_path}/state.db"
    said = compare(recording(*DECISIONS[:10]), "--store", store)
    assert summary(said) == "10 passed, 0 failed"
    assert (tmp_path / "state.db").exists()
    wrong = compare(recording(*DECISIONS[:1]), "--store", "mysql://x")
    assert wrong.code == 2
    assert "mysql" in wrong.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_interrupted_run_deletes_its_clusters(number):
    with served() as server, Client(server.address) as client:
        where = ("--address", server.address, "--jobs", "3")
        command = [sys.executable, "-m", "tests.conformance", *where]
        process = subprocess.Popen(
            [*command, str(RECORDED / "decisions.jsonl.gz")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            cwd=ROOT,
        )
        with process:
            while not _throw_away(client):
                assert process.poll() is None
            os.kill(process.pid, number)
            out, err = process.communicate(timeout=120)
        assert process.returncode == 130
        assert err.strip() == "topospread: interrupted"
        assert "passed" not in out
        assert not _throw_away(client)


def _throw_away(client):
    return [c.name for c in client.list_clusters() if c.name.startswith("conf-")]
