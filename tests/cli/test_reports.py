"""What `report` prints of rows and beside them, and how it ends."""

from __future__ import annotations

import pytest

from tests.cli.owned import ZONE, documents, nodes, pod_of, spread
from topospread.cli.errors import MAX_LINES

KEYS = {
    f"{ZONE} ": ('"zone "', f'shop StatefulSet/web, "{ZONE} ": '),
    "": ('""', 'shop StatefulSet/web, "": topologyKey is empty'),
    ZONE: ("zone", f"shop StatefulSet/web, {ZONE}: skew 2 is above"),
}
"""Keys as rows and messages show them."""


@pytest.mark.parametrize(("key", "shown"), KEYS.items())
def test_a_key_that_cannot_be_seen_is_in_quotes(bare, tmp_path, key, shown):
    constraints = [spread(topologyKey=key)]
    pods = [pod_of("StatefulSet/web", f"web-{i}", "a1", constraints=constraints) for i in (0, 1)]
    path = tmp_path / "state.yaml"
    path.write_text(documents(*nodes("a1", "b1"), *pods))
    said = bare("report", "--from", str(path))
    cell, message = shown
    assert said.lines[1].split("StatefulSet/web")[1].strip().startswith(f"{cell}  ")
    assert any(line.startswith(message) for line in said.lines)
    wide = bare("report", "--from", str(path), "-o", "wide")
    assert (key if key == ZONE else f'"{key}"') in wide.lines[1]


def test_reasons_stand_before_whose_pods_are_counted(bare, tmp_path):
    pods = [
        pod_of(f"StatefulSet/s{i:02}", f"s{i:02}-0", "a1", constraints=[spread(topologyKey=ZONE)])
        for i in range(MAX_LINES - 1)
    ]
    waits = pod_of("StatefulSet/late", "late-0", constraints=[spread(topologyKey=ZONE, maxSkew=99)])
    path = tmp_path / "state.yaml"
    path.write_text(documents(*nodes("a1", "b1"), *pods, waits))
    lines = bare("report", "--from", str(path)).lines
    below = lines[lines.index("") + 1 :]
    assert all("is above maxSkew 1" in line for line in below[: MAX_LINES - 1])
    assert below[MAX_LINES - 1].startswith("shop StatefulSet/late: 1 pod waits: ")
    assert below[MAX_LINES] == f"... and {MAX_LINES} more: -o wide has all messages"


CHECKED = {
    ("--key", ZONE): 1,
    ("--key", "zone"): 2,
    ("--key", ZONE, "--soft"): 2,
    ("--soft",): 0,
    ("--key", "zone", "-o", "json"): 2,
}
"""Options of a check, and how it ends."""


@pytest.mark.parametrize(("options", "code"), CHECKED.items())
def test_a_check_by_a_key_that_no_constraint_has_does_not_pass(bare, tmp_path, options, code):
    constraints = [spread(topologyKey=ZONE)]
    pods = [pod_of("StatefulSet/web", f"web-{i}", "a1", constraints=constraints) for i in (0, 1)]
    path = tmp_path / "state.yaml"
    path.write_text(documents(*nodes("a1", "b1"), *pods))
    said = bare("report", "--fail-on", "violated", *options, "--from", str(path))
    assert said.code == code
    assert ("nothing was checked: no constraints that --key" in said.err) is (code == 2)
