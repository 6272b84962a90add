"""Tables, on a terminal of 80 columns as in a pipe: cells are whole, and bars fit."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

import pytest

from tests.cli.manifests import CLUSTER
from tests.cli.processes import TOPOSPREAD, environment, run
from tests.cli.spreads import NODES as SPREAD_NODES
from tests.cli.spreads import STATES, node, pod
from topospread.cli.errors import DONE, MAX_LINES

LONG = "disk-eu-central-1a-0123456789abcdef0123456789abcdef-pool"
NODES = [f"{LONG}-{number}" for number in range(3)]
SPREAD = (
    "topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, "
    "whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: orders}}}]"
)


def long_names() -> str:
    made = []
    for number, host in enumerate(NODES):
        made.append(
            f"kind: Node\nmetadata: {{name: {host}, labels: {{zone: zone-{number}, "
            f"kubernetes.io/hostname: {host}, topology.kubernetes.io/zone: zone-{number}}}}}\n"
            "status: {allocatable: {pods: 110}}\n"
        )
        made.append(
            f"kind: Pod\nmetadata: {{name: orders-database-{number}, namespace: data, "
            "labels: {app: orders, app.kubernetes.io/part-of: everything}, ownerReferences: "
            "[{apiVersion: apps/v1, kind: StatefulSet, name: orders-database, controller: true}]}\n"
            f"spec: {{nodeName: {NODES[0]}, {SPREAD}}}\n"
        )
    made.append(
        "kind: StatefulSet\nmetadata: {name: orders-database, namespace: data}\n"
        "spec: {replicas: 3, selector: {matchLabels: {app: orders}}}\n"
    )
    return "---\n".join(made)


def on_terminal(
    *arguments: str, columns: int = 80, styled: bool = False, **variables: str
) -> list[str]:
    """Lines that a command writes to a terminal, mostly without their colours."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen(
        [*TOPOSPREAD, *arguments],
        stdout=its,
        stderr=its,
        env=environment(TERM="xterm", COLUMNS=str(columns), **variables),
    ) as process:
        os.close(its)
        written = b""
        while True:
            try:
                read = os.read(ours, 65536)
            except OSError:  # Linux: the other end is closed
                break
            if not read:
                break
            written += read
        process.wait()
    os.close(ours)
    text = written.decode()
    return (text if styled else re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)).splitlines()


@pytest.fixture
def loaded(topospread):
    assert topospread("apply", "-f", "-", stdin=long_names()).code == 0
    return topospread


@pytest.fixture
def where(address, cluster):
    """Variables of a process that asks the same server."""
    return {"TOPOSPREAD_ADDRESS": address, "TOPOSPREAD_CLUSTER": cluster}


SHOWN = {
    ("get", "pods", "-n", "data"): ["data", "orders-database-0", NODES[0]],
    ("get", "pods", "-o", "wide"): ["StatefulSet/orders-database", NODES[0]],
    ("get", "nodes"): NODES,
    ("get", "workloads"): ["StatefulSet", "orders-database", "app=orders"],
    ("evaluate", "data/orders-database-0"): ["DoNotSchedule", "ELIGIBLE DOMAINS"],
    ("explain", "data/orders-database-0"): ["closed", "holds the minimum"],
    ("place", "data/orders-database-0"): [NODES[0], "HELD UNTIL"],
    ("simulate", "data/orders-database-0", "--delete-pod", "data/orders-database-0"): [NODES[1]],
    ("rank-deletions", "-l", "app=orders", "-n", "data"): [*NODES[:1], "data/orders-database-2"],
    ("plan-rebalance", "-n", "data"): [NODES[0], NODES[1], "data/orders-database-"],
    ("report", "orders-database"): ["StatefulSet/orders-database", "Violated", "maxSkew 1"],
    ("report", "-o", "wide"): ["app=orders", "3 pods in zone-0"],
    ("status",): ["NODES", "PODS"],
}


@pytest.mark.parametrize("arguments", SHOWN, ids=" ".join)
def test_cells_are_whole_on_a_narrow_terminal(loaded, where, arguments):
    lines = on_terminal(*arguments, **where)
    text = "\n".join(lines)
    assert "…" not in text
    assert [part for part in SHOWN[arguments] if part not in text] == []


def test_terminal_and_pipe_show_the_same_table(loaded, where):
    assert on_terminal("get", "pods", **where) == loaded("get", "pods").lines


def test_labels_are_shown_where_they_are_asked_for(loaded):
    columns = ["NAMESPACE", "NAME", "NODE", "PHASE", "CONSTRAINTS"]
    assert loaded("get", "pods").lines[0].split() == columns
    labels = "app=orders,app.kubernetes.io/part-of=everything"
    assert loaded("get", "pods", "--show-labels").lines[0].split() == [*columns, "LABELS"]
    assert loaded("get", "pods", "--show-labels").lines[1].split()[-1] == labels
    wide = loaded("get", "pods", "-o", "wide").lines
    assert wide[0].split() == [*columns, "CONTROLLED", "BY", "LABELS"]
    assert wide[1].split()[-2:] == ["StatefulSet/orders-database", labels]
    keyed = loaded("get", "pods", "-L", "app.kubernetes.io/part-of,app").lines
    assert keyed[0].split() == [*columns, "PART-OF", "APP"]
    assert keyed[1].split()[-2:] == ["everything", "orders"]
    nodes = loaded("get", "nodes", "-L", "zone").lines
    assert [line.split()[-1] for line in nodes] == ["ZONE", "zone-0", "zone-1", "zone-2"]


def test_headings_may_be_left_out(loaded):
    assert loaded("get", "nodes", "--no-headers").lines == loaded("get", "nodes").lines[1:]
    mixed = loaded("get", "node/" + NODES[0], "pod/data/orders-database-0").lines
    assert [line.split()[0] for line in mixed if line] == ["NAME", NODES[0], "NAMESPACE", "data"]


def test_wide_is_a_table_to_verbs_without_more_columns(topospread):
    topospread("apply", "-f", "-", stdin=CLUSTER)
    assert topospread("evaluate", "shop/web-0", "-o", "wide").lines[0] == "Pod shop/web-0"
    assert topospread("-o", "wide", "get", "nodes", "-o", "name").lines[0] == "node/a1"


WORST_FIRST = ["StatefulSet/db", "StatefulSet/web", "DaemonSet/log", "StatefulSet/cart"]


@pytest.fixture
def reported(topospread):
    assert topospread("apply", "-f", "-", stdin=STATES).code == DONE
    return topospread


def owners(said):
    """Owners of a table's rows."""
    return [line.split()[1] for line in said.lines if line.split()]


def test_reasons_that_would_be_too_many_are_counted(topospread):
    number = MAX_LINES + 2
    racks = [pod(f"w{i}", 0, "a1", key="rack", action="ScheduleAnyway") for i in range(number)]
    assert topospread("apply", "-f", "-", stdin=SPREAD_NODES + "".join(racks)).code == DONE
    said = topospread("report").lines
    assert len(said) == 1 + number + 1 + MAX_LINES + 1
    assert said[-1] == "... and 2 more: -o wide has all messages"


def test_pages_are_joined(reported, monkeypatch):
    monkeypatch.setattr("topospread.cli.render.constraint_lists.PAGE_SIZE", 1)
    assert owners(reported("report", "--no-headers")) == WORST_FIRST
    assert owners(reported("report", "--no-headers", "--limit", "3")) == WORST_FIRST[:3]


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


def test_other_encodings_have_bars_of_their_own(reported, where):
    said = run("report", "web", PYTHONIOENCODING="ascii", **where).stdout
    assert said.splitlines()[1].endswith("a ### 3, b 0")


def test_states_have_colours_on_a_terminal_alone(reported, where, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b" not in reported("report").out
    shown = on_terminal("report", styled=True, **where)
    assert "\x1b[31mBlocked" in "".join(shown)
    assert "\x1b[31m" not in "".join(on_terminal("report", styled=True, NO_COLOR="1", **where))


def test_pods_of_a_constraint_that_are_left_out_are_counted(topospread):
    many = "".join(pod("web", number, f"a{number % 2 + 1}") for number in range(102))
    assert topospread("apply", "-f", "-", stdin=SPREAD_NODES + many).code == DONE
    (name,) = topospread("report", "-o", "name").lines
    assert topospread("get", name).lines[-1] == "... and 2 more pods"
