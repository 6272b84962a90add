"""`topospread report`: the spread of all constraints, the worst first."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from tests.cli.conftest import check_document
from tests.cli.manifests import CLUSTER
from tests.cli.processes import run
from tests.cli.spreads import NODES, STATES, ZONE, node, pod
from tests.cli.test_tables import on_terminal
from topospread.cli.errors import BAD_INPUT, DONE, MAX_LINES, NO_NODE_FITS

WORST_FIRST = ["StatefulSet/db", "StatefulSet/web", "DaemonSet/log", "StatefulSet/cart"]
BY_NAME = ["StatefulSet/db", "DaemonSet/log", "StatefulSet/cart", "StatefulSet/web"]


@pytest.fixture
def loaded(topospread):
    assert topospread("apply", "-f", "-", stdin=STATES).code == DONE
    return topospread


@pytest.fixture
def where(address, cluster):
    """Variables of a process that asks the same server."""
    return {"TOPOSPREAD_ADDRESS": address, "TOPOSPREAD_CLUSTER": cluster}


def owners(said):
    """Owners of a table's rows."""
    return [line.split()[1] for line in said.lines if line.split()]


def test_table_has_the_worst_first_with_a_bar_for_each_domain(loaded):
    said = loaded("report")
    assert (said.code, said.err) == (
        DONE,
        "4 constraints: 1 blocked, 1 violated, 1 ineffective, 1 satisfied\n",
    )
    columns = "NAMESPACE OWNER KEY WHEN SKEW STATE PENDING BLOCKED SPREAD"
    assert said.lines[0].split() == columns.split()
    rows = [re.split(r"\s{2,}", line) for line in said.lines[1:5]]
    db = ["data", "StatefulSet/db", "zone", "DoNotSchedule", "1/1", "Blocked", "1", "1"]
    assert rows[0] == [*db, "a █ 1 · b █ 1"]
    assert rows[1][1:] == [
        *("StatefulSet/web", "zone", "DoNotSchedule", "3/1", "Violated", "0", "0"),
        "a ███ 3 · b 0",
    ]
    log = ["DaemonSet/log", "example.com/rack", "ScheduleAnyway", "0/1", "Ineffective", "0", "0"]
    assert rows[2][1:] == [*log, "<none>"]
    assert rows[3][5:] == ["Satisfied", "0", "0", "a █ 1 · b █ 1"]


ODD = """\
---
apiVersion: v1
kind: Pod
metadata: {name: a-1, namespace: d, labels: {app: a}}
spec:
  nodeSelector: {disk: ssd}
  topologySpreadConstraints:
  - maxSkew: -1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: DoNotSchedule
    labelSelector: {matchLabels: {app: a}}
"""


def test_a_pod_that_no_api_server_stores_ends_no_report(topospread, tmp_path):
    state = tmp_path / "state.yaml"
    state.write_text(STATES + ODD)
    said = topospread("report", "--from", str(state))
    assert (said.code, said.err) == (
        DONE,
        "5 constraints: 1 blocked, 1 violated, 2 ineffective, 1 satisfied\n",
    )
    assert any("maxSkew -1 must be greater than zero" in line for line in said.lines)


def test_reasons_stand_below_the_table(loaded):
    said = loaded("report").lines
    assert said[5] == ""
    assert [line.partition(":")[0] for line in said[6:]] == [
        f"data StatefulSet/db, {ZONE}",
        f"shop StatefulSet/web, {ZONE}",
        "shop DaemonSet/log, example.com/rack",
    ]
    assert "minDomains is 3" in said[6]
    assert "skew 3 is above maxSkew 1" in said[7]


def test_reasons_that_would_be_too_many_are_counted(topospread):
    number = MAX_LINES + 2
    racks = [pod(f"w{i}", 0, "a1", key="rack", action="ScheduleAnyway") for i in range(number)]
    assert topospread("apply", "-f", "-", stdin=NODES + "".join(racks)).code == DONE
    said = topospread("report").lines
    assert len(said) == 1 + number + 1 + MAX_LINES + 1
    assert said[-1] == "... and 2 more: -o wide has all messages"


def test_wide_table_has_whole_keys_selectors_ids_and_reasons(loaded):
    said = loaded("report", "-o", "wide")
    assert len(said.lines) == 5
    header = said.lines[0].split()
    assert header[-6:] == ["DOMAINS", "SELECTOR", "DEFAULTED", "ID", "SPREAD", "MESSAGE"]
    db, web, *_ = (re.split(r"\s{2,}", line) for line in said.lines[1:])
    assert (web[2], web[8:11]) == (ZONE, ["1 of 2 allow", "app=web", "no"])
    assert re.fullmatch(r"[0-9a-f]{20}", web[11])
    assert web[13].startswith("skew 3 is above maxSkew 1")
    assert db[8] == "0 of 2 allow"


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (["-A"], WORST_FIRST),
        (["-n", "data"], ["StatefulSet/db"]),
        (["-l", "app in (db,cart)"], ["StatefulSet/db", "StatefulSet/cart"]),
        (["--state", "violated"], ["StatefulSet/web"]),
        (["--state", "Ineffective, blocked"], ["StatefulSet/db", "DaemonSet/log"]),
        (["--key", "example.com/rack"], ["DaemonSet/log"]),
        (["--hard"], ["StatefulSet/db", "StatefulSet/web"]),
        (["--soft"], ["DaemonSet/log", "StatefulSet/cart"]),
        (["sts/web"], ["StatefulSet/web"]),
        (["cart", "log", "sts/cart"], ["DaemonSet/log", "StatefulSet/cart"]),
        (["--sort-by", "name"], BY_NAME),
        (["--sort-by", "skew", "--limit", "2"], ["StatefulSet/web", "StatefulSet/db"]),
        (["--limit", "2"], WORST_FIRST[:2]),
        (["--limit", "1", "cart", "sts/web"], ["StatefulSet/web"]),
    ],
    ids=str,
)
def test_constraints_are_chosen_and_ordered(loaded, asked, found):
    said = loaded("report", "--no-headers", *asked)
    assert owners(said) == found
    assert said.code == DONE


def test_rows_that_are_left_out_are_counted(loaded):
    assert loaded("report", "--state", "violated").err == (
        "4 constraints: 1 blocked, 1 violated, 1 ineffective, 1 satisfied; 1 shown\n"
    )
    assert loaded("report", "--limit", "1", "-n", "shop").err == (
        "3 constraints: 1 violated, 1 ineffective, 1 satisfied; 1 shown\n"
    )
    two = loaded("report", "cart", "sts/cart", "sts/web", "--limit", "1").err
    assert two == "2 constraints: 1 violated, 1 satisfied; 1 shown\n"
    none = loaded("report", "-n", "data", "--state", "satisfied")
    assert (none.code, none.out, none.err) == (DONE, "", "1 constraint: 1 blocked; 0 shown\n")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["-n", "missing"], "no constraints in namespace missing: -A shows those of all"),
        (["--key", "rack", "--soft"], "no constraints that --key, --hard or --soft lets through"),
        (["cart", "--hard"], "no constraints that --hard or --soft lets through"),
        (["-l", "app=no"], "no constraints that -l lets through"),
    ],
    ids=str,
)
def test_where_no_constraint_is_found_it_is_said_among_which(loaded, asked, said):
    none = loaded("report", *asked, "--fail-on", "satisfied")
    assert (none.code, none.out, none.err) == (DONE, "", f"{said}\n")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["deploy/webb"], "no constraints of Deployment/webb"),
        (["Rollout/web"], "no constraints of Rollout/web"),
        (
            ["sts/xyz", "-n", "shop"],
            "no constraints of StatefulSet/xyz in namespace shop: -A looks",
        ),
        (
            ["web", "-n", "shpo"],
            "no constraints of web in namespace shpo, nor of any other workload",
        ),
        (["deploy"], "no constraints of deploy: with a kind, write deploy/NAME"),
        (["web", "cartt", "lgo"], "no constraints of cartt"),
    ],
    ids=str,
)
def test_a_workload_without_constraints_is_refused_as_a_check_of_nothing(loaded, asked, said):
    for more in ((), ("--fail-on", "violated")):
        refused = loaded("report", *asked, *more)
        assert (refused.code, refused.out) == (BAD_INPUT, "")
        assert refused.err.startswith(f"topospread: {said}")
    document = json.loads(loaded("report", *asked, "-o", "json").err)
    assert document["error"]["reason"] == "OBJECT_NOT_FOUND"


def test_all_workloads_without_constraints_are_named(loaded):
    said = loaded("report", "web", "cartt", "lgo")
    assert [line.split()[4] for line in said.err.splitlines()] == ["cartt", "lgo"]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (["--fail-on", "violated"], NO_NODE_FITS),
        (["--fail-on", "blocked", "-n", "shop"], DONE),
        (["--fail-on", "violated", "-n", "shop"], NO_NODE_FITS),
        (["--fail-on", "ineffective", "--soft"], NO_NODE_FITS),
        (["--fail-on", "violated", "--soft"], DONE),
        (["--fail-on", "violated", "--state", "blocked,satisfied", "-n", "shop"], DONE),
        (["--fail-on", "violated", "-n", "missing"], DONE),
        (["--fail-on", "blocked", "--sort-by", "skew", "--limit", "1"], NO_NODE_FITS),
        (["--fail-on", "satisfied", "cart", "-o", "name"], NO_NODE_FITS),
    ],
    ids=str,
)
def test_exit_code_says_that_a_constraint_is_as_bad_as_asked(loaded, asked, code):
    assert loaded("report", *asked).code == code


def test_json_has_each_constraint_with_its_fields_and_its_state_s(loaded):
    said = loaded("report", "-o", "json")
    document = json.loads(said.out)
    check_document(document)
    assert (document["kind"], said.err) == ("ConstraintList", "")
    assert document["totals"][0] == {"state": "Blocked", "constraintCount": 1}
    web = document["items"][1]
    assert {key: web[key] for key in ("namespace", "topologyKey", "skew", "state", "maxSkew")} == {
        "namespace": "shop",
        "topologyKey": ZONE,
        "skew": 3,
        "state": "Violated",
        "maxSkew": 1,
    }
    assert web["owner"] == {"kind": "StatefulSet", "name": "web"}
    assert web["domains"] == [{"value": "b", "podCount": 0}, {"value": "a", "podCount": 3}]
    assert [each["code"] for each in document["items"][2]["findings"]] == ["KeyOnNoNode"]
    assert yaml.safe_load(loaded("report", "-o", "yaml").out)["items"] == document["items"]
    (short,) = json.loads(loaded("report", "web", "--domains", "1", "-o", "json").out)["items"]
    assert (len(short["domains"]), short["unlistedDomainCount"]) == (1, 1)


def test_rules_may_be_others_than_the_server_s(topospread, tmp_path):
    """Pods without constraints have the defaults."""
    assert topospread("apply", "-f", "-", stdin=CLUSTER).code == DONE
    args = tmp_path / "args.yaml"
    default = f"{{maxSkew: 1, topologyKey: {ZONE}, whenUnsatisfiable: DoNotSchedule}}"
    args.write_text(f"{{defaultingType: List, defaultConstraints: [{default}]}}")
    said = topospread("report", "--args", args, "-o", "json")
    (one,) = json.loads(said.out)["items"]
    assert (one["defaulted"], one["skew"], one["state"]) == (True, 2, "Violated")
    assert "  yes  " in topospread("report", "--args", args, "-o", "wide").lines[1]
    assert "profile" in topospread("report", "--profile", "none").err


def test_names_are_those_that_get_takes(loaded):
    names = loaded("report", "-o", "name").lines
    ids = [each["constraintId"] for each in json.loads(loaded("report", "-o", "json").out)["items"]]
    assert names == [f"constraint/{each}" for each in ids]


def test_pages_are_joined(loaded, monkeypatch):
    monkeypatch.setattr("topospread.cli.render.constraints.PAGE_SIZE", 1)
    assert owners(loaded("report", "--no-headers")) == WORST_FIRST
    assert owners(loaded("report", "--no-headers", "--limit", "3")) == WORST_FIRST[:3]


def test_bars_are_as_long_as_fits_the_terminal(topospread, where):
    zones = [f"eu-central-1{letter}" for letter in "abc"]
    nodes = "".join(node(zone, zone) for zone in zones)
    pods = "".join(pod("web", number, zones[number % 3]) for number in range(60))
    assert topospread("apply", "-f", "-", stdin=nodes + pods).code == DONE
    columns = (220, 150, 120, 60)
    shown = [on_terminal("report", columns=width, **where)[1] for width in columns]
    assert all(len(line) <= width for line, width in zip(shown[:3], columns, strict=False))
    longest, shorter, without_prefix, ends = (line.split("0  ", 2)[-1] for line in shown)
    assert longest == " · ".join(f"{zone} {'█' * 10} 20" for zone in zones)
    assert re.fullmatch(r"eu-central-1a █{1,9} 20 · .*", shorter)
    assert re.fullmatch(r"-1a █+ 20 · -1b █+ 20 · -1c █+ 20", without_prefix)
    assert ends == "20..20 in 3 domains"


def test_other_encodings_have_bars_of_their_own(loaded, where):
    said = run("report", "web", PYTHONIOENCODING="ascii", **where).stdout
    assert said.splitlines()[1].endswith("a ### 3, b 0")


def test_states_have_colours_on_a_terminal_alone(loaded, where, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b" not in loaded("report").out
    shown = on_terminal("report", styled=True, **where)
    assert "\x1b[31mBlocked" in "".join(shown)
    assert "\x1b[31m" not in "".join(on_terminal("report", styled=True, NO_COLOR="1", **where))


MISTAKES = {
    ("--state", "bad"): "'bad' is no state of a constraint: there are blocked, violated,",
    ("--fail-on", "bad"): "'bad' is not one of",
    ("-A", "-n", "shop"): "-A is all namespaces",
    (
        "--state",
        "satisfied",
        "--fail-on",
        "violated",
    ): "add blocked or violated to --state, or leave",
    ("a/b/c",): "'a/b/c' is no workload: write KIND/NAME",
    ("deploy/",): "'deploy/' is no workload",
    ("rollout/web",): "unknown kind 'rollout': write it as manifests do, as Rollout",
    ("-l", "a=b=c"): "no requirement",
    ("--limit", "0"): "0 is not in the range",
    ("-w", "web", "cart"): "--watch is of one workload, or of all",
    ("-w", "--limit", "1"): "--limit and --fail-on are of one look",
    ("-w", "--fail-on", "blocked"): "--limit and --fail-on are of one look",
    ("-w", "--from", "examples/cluster"): "--watch needs a server",
}


@pytest.mark.parametrize("asked", MISTAKES, ids=" ".join)
def test_mistakes_are_reported(loaded, asked):
    said = loaded("report", *asked)
    assert (said.code, said.out) == (BAD_INPUT, "")
    assert MISTAKES[asked] in said.err


def test_a_file_is_reported_on_without_a_server(bare, tmp_path):
    dump = tmp_path / "dump.yaml"
    dump.write_text(STATES)
    said = bare("report", "--from", dump, "--no-headers", "--fail-on", "blocked")
    assert (owners(said), said.code) == (WORST_FIRST, NO_NODE_FITS)
