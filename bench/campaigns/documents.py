"""Files as people write them, changed: as trees, as words of YAML, and as bytes."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from bench.campaigns.mutation import mutated_bytes

if TYPE_CHECKING:
    from random import Random

_ROOT: Final = Path(__file__).parents[2]
EXAMPLES: Final = sorted(_ROOT.glob("examples/*/*.yaml"))

_VALUES: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, -1, 1, 2**31, -(2**63), 2**64, 10**400, 1.5, 1e300),
    *(float("inf"), float("nan"), "", "x", "a" * 70, "\0", "\x1b[2J", "ä\u202e", "\u2028"),
    *([], {}, [None], [[]], [{}], {"": ""}, {"a": {"b": {}}}, "DoNotSchedule", "zone", "5", "1e9"),
    *("2026-01-01T00:00:00Z", "100m", "-1Gi", "1e400", "List", "PodList", "Pod", "Node"),
)
_KEYS: Final = (
    "kind",
    "items",
    "metadata",
    "spec",
    "name",
    "labels",
    "template",
    "replicas",
    "",
    "x",
)
_WORDS: Final = (
    *("&a ", "*a ", "&a [*a]", "<<: *a\n", "? ", "- ", "- - ", ": ", "{", "}", "[", "]", ", "),
    *("!!int ''", "!!float x", "!!bool x", "!!set {a}", "!!binary aGk=", "!!timestamp x", "!x y"),
    *("!!python/object:os.system x", "1e400", ".inf", "-.NaN", "0x", "0o9", "9" * 5000, "1_0"),
    *("---\n", "...\n", "%YAML 1.1\n---\n", "%TAG ! x\n", "|\n", ">-\n", "#", '"', "'", "\\", "\t"),
    *("\0", "\ufeff", "\u2028", "\x85", "\x1b[2J", "kind: Pod\n", "kind: List\nitems:\n"),
)


def changed_file(random: Random) -> bytes:
    """One file."""
    kind = random.random()
    if kind < 0.08:
        return _heap(random)
    text = random.choice(EXAMPLES).read_text()
    if kind < 0.55:
        return _written(_changed_trees(text, random), random)
    if kind < 0.8:
        return _with_words(text, random).encode("utf-8", "surrogatepass")
    raw = text.encode() if kind < 0.97 else text.encode("utf-16")
    for _ in range(random.randint(1, 3)):
        raw = mutated_bytes(raw, random)
    return raw


def _changed_trees(text: str, random: Random) -> list[Any]:
    trees = [tree for tree in yaml.load_all(text, yaml.CSafeLoader) if tree is not None]
    for _ in range(random.choice((1, 1, 2, 4))):
        holder: Any = [trees]
        key: Any = 0
        place: Any = trees
        while isinstance(place, dict | list) and place and random.random() < 0.85:
            holder = place
            key = random.choice(list(place) if isinstance(place, dict) else range(len(place)))
            place = place[key]
        action = random.random()
        if action < 0.15 and isinstance(place, dict):
            place[random.choice(_KEYS)] = deepcopy(random.choice(_VALUES))
        elif action < 0.3 and isinstance(place, list) and place:
            place *= random.choice((0, 2, 20))
        else:
            holder[key] = deepcopy(random.choice(_VALUES))
    return trees


def _written(trees: list[Any], random: Random) -> bytes:
    form = random.randrange(5)
    if form == 0:
        return "\n".join(json.dumps(tree) for tree in trees).encode()
    if form == 1:
        return json.dumps({"kind": "List", "items": trees}, indent=1).encode()
    flow = random.choice((None, True, False))
    dumped: str = yaml.dump_all(trees, Dumper=yaml.CSafeDumper, default_flow_style=flow)
    return dumped.encode("utf-8", "surrogatepass")


def _with_words(text: str, random: Random) -> str:
    for _ in range(random.choice((1, 1, 2, 4))):
        ends = [at for at, sign in enumerate(text) if sign in " \n"] or [0]
        at = random.choice(ends) + random.randint(0, 1)
        text = text[:at] + random.choice(_WORDS) + text[at:]
    return text


def _heap(random: Random) -> bytes:
    """Something small that stands for, or looks like, very much."""
    many = random.choice((3, 50, 3000, 100_000))
    width = random.choice((2, 10, 50))
    aliases = ",".join(["*a"] * width)
    kind = random.randrange(8)
    if kind == 0:
        text = _ladder("[x]", "[{}]", many, width)
    elif kind == 1:
        text = _ladder("{k: v}", "{{<<: [{}]}}", many, width)
    elif kind == 2:
        text = f"kind: Pod\nmetadata: &a {{name: x, labels: {{a: {aliases}}}}}\n"
    elif kind == 3:
        text = (
            random.choice(("- ", "? ", "[", "{", "a: [", "? - ", "!!seq [", '{"a":', "- ? ")) * many
        )
    elif kind == 4:
        inner = '{"kind":"Pod","metadata":{"name":"x"}}'
        text = '{"kind":"List","items":[' * min(many, 3000) + inner + "]}" * min(many, 3000)
    elif kind == 5:
        text = "kind: Pod\nmetadata: {name: " + "ab" * many + "}\nspec: {nodeName: 5}\n"
    elif kind == 6:
        # A pod is a call each: so many would only take their time.
        text = random.choice(
            ("{}" * many, "---\n" * many, "[]\n" * many, "#\n" * many, '{"kind":"Pod"}\n' * width)
        )
    else:
        text = "kind: Pod\nspec:\n" + "".join(
            " " * depth + "a:\n" for depth in range(min(many, 2000))
        )
    return text.encode()


def _ladder(first: str, step: str, many: int, width: int) -> str:
    """Anchors, each of which stands for several of the one before."""
    lines = ["kind: Pod", f"a0: &a0 {first}"]
    for number in range(1, min(many, 40)):
        shared = ",".join([f"*a{number - 1}"] * width)
        lines.append(f"a{number}: &a{number} " + step.format(shared))
    return "\n".join(lines) + "\n"
