"""Where objects of any kind have pod templates and topologySpreadConstraints.

A pod template is a mapping whose `spec` has containers or topologySpreadConstraints, or a Pod that
an object holds. Kubernetes' own kinds have theirs at a known place; in other kinds it is looked
for, also in the objects that they hold. Metadata and status are not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

Path: TypeAlias = "tuple[str | int, ...]"
"""Keys of objects and positions in lists, from the outermost."""

CONSTRAINTS: Final = "topologySpreadConstraints"

_ONE: Final = "topologySpreadConstraint"
"""What a few other kinds call the list."""

_ALIKE: Final = re.compile(r"(?i)topology_?spread_?con[a-z]{0,20}$")
"""Names that are nearly that of constraints."""

_MOST_MISSPELT: Final = 100

_SEPARATORS: Final = re.compile(r"[/.\[\]:()]+")
"""Between the steps of paths: of JSON patches, of Istio's overlays, of Helm's parameters and of
Gatekeeper's locations; and around the names in a policy's patterns: ``+(a)``.
"""

_SPEC_TEMPLATE: Final = ("spec", "template")

_OWN: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = MappingProxyType(
    {
        **dict.fromkeys(
            ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"),
            (("apps", "extensions"), _SPEC_TEMPLATE),
        ),
        "ReplicationController": (("",), _SPEC_TEMPLATE),
        "Job": (("batch",), _SPEC_TEMPLATE),
        "CronJob": (("batch",), ("spec", "jobTemplate", *_SPEC_TEMPLATE)),
        "PodTemplate": (("",), ("template",)),
    }
)
"""Kubernetes' own kinds with a pod template: their API groups, and the path of the template."""

_LIKE_OWN: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "apps.kruise.io": frozenset({"CloneSet", "StatefulSet", "DaemonSet"}),
        "argoproj.io": frozenset({"Rollout"}),
    }
)
"""Kinds of others, by API group, whose template and the labels of whose pods are known, too."""

_UNREAD: Final = frozenset(
    {"CustomResourceDefinition", "CompositeResourceDefinition", "ControllerRevision"}
)
"""Kinds that describe fields and have none, and what a controller keeps of templates."""

_COUNTS: Final = ("replicas", "parallelism", "instances", "count")
"""Fields beside a template, or around it, that say how many pods are made of it."""

_GROUP: Final = frozenset({"leaderTemplate", "workerTemplate"})
"""Templates of a group whose `size` stands beside them, the leader among them."""

MOST_DEPTH: Final = 64
"""How deep a part of an object may be that is looked at; Kubernetes' own are not half as deep."""


class PodTemplate(NamedTuple):
    """A pod template of an object.

    Attributes:
        path: from the object's root; empty where the object is a pod.
        content: of any type: what Kubernetes' own kinds have in its place.
        holder: the object that has it: the one that was looked at, or one within that.
        around: what is between the holder and the template, the holder first.
    """

    path: Path
    content: Any
    holder: Mapping[str, Any]
    around: tuple[Any, ...]

    @property
    def text(self) -> str:
        """The path as kubectl prints it."""
        return path_text(self.path)

    @property
    def owner_text(self) -> str:
        """The path of what has it, as kubectl prints it."""
        return path_text(self.path[:-1])

    @property
    def replicas(self) -> int | None:
        """How many pods are made of it; None where nothing says so."""
        found = None
        for each in self.around:
            count = next((each[name] for name in _COUNTS if _is_count(_get(each, name))), None)
            if count is not None:
                found = count if found is None else found * count
        if (size := _group_size(self.path, self.around)) is not None:
            found = size if found is None else found * size
        return found


class ConstraintList(NamedTuple):
    """Constraints that stand outside of any pod template.

    Attributes:
        path: of the list, from the object's root.
        content: of any type.
        holder: the object that has it: the one that was looked at, or one within that.
        is_part: its constraints have one field each, which a patch sets.
    """

    path: Path
    content: Any
    holder: Mapping[str, Any]
    is_part: bool = False

    @property
    def text(self) -> str:
        """The path as kubectl prints it."""
        return path_text(self.path)


class SpreadParts(NamedTuple):
    """Parts of an object that say how pods are spread, in its order."""

    templates: list[PodTemplate]
    lists: list[ConstraintList]


def path_text(path: Path) -> str:
    """A path as kubectl prints it: ``spec.nodeSets[0].podTemplate``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def is_own_kind(manifest: Mapping[str, Any]) -> bool:
    """Whether an object is of a kind of Kubernetes' own that has a pod template.

    Without apiVersion the group is not checked.
    """
    kind, version = _get(manifest, "kind"), _get(manifest, "apiVersion")
    if not isinstance(kind, str) or kind not in _OWN:
        return False
    return not version or _group(version) in _OWN[kind][0]


def has_known_template(manifest: Mapping[str, Any]) -> bool:
    """Whether an object's template is Kubernetes' own type, and its pods' labels are known."""
    kind, group = _get(manifest, "kind"), _group(_get(manifest, "apiVersion"))
    if is_own_kind(manifest):
        return True
    # Without apiVersion the group is not checked.
    known = _LIKE_OWN.get(group, frozenset()) if group else frozenset().union(*_LIKE_OWN.values())
    return isinstance(kind, str) and kind in known


def known_template(manifest: Mapping[str, Any]) -> PodTemplate | None:
    """What an object has where its kind is known to have its template."""
    return _known_template(manifest, ())


def own_path(kind: str) -> Path:
    """Where a kind has its template: that of Kubernetes' own kinds, else where most have it."""
    return _OWN[kind][1] if kind in _OWN else _SPEC_TEMPLATE


def pod_templates(manifest: Mapping[str, Any]) -> list[PodTemplate]:
    """Pod templates of an object, in its order; none of a pod.

    One that a kind of Kubernetes' own lacks is none; what it has in its place is one.
    """
    return spread_parts(manifest).templates


def spread_parts(manifest: Mapping[str, Any]) -> SpreadParts:
    """Pod templates of an object, and the constraints outside of them."""
    found = SpreadParts([], [])
    if isinstance(manifest, Mapping):
        _add(found, manifest, ())
    return found


def misspelt_constraints(manifest: Mapping[str, Any]) -> list[str]:
    """Paths of constraints in an object whose name is nearly theirs, 100 at most."""
    found: list[str] = []
    waiting: list[tuple[Path, Any]] = []
    if isinstance(manifest, Mapping):
        waiting.append(((), manifest))
    while waiting and len(found) < _MOST_MISSPELT:
        path, part = waiting.pop()
        members = part.items() if isinstance(part, Mapping) else enumerate(part)
        for name, each in members:
            if _is_misspelt(name, each):
                found.append(path_text((*path, name)))
            elif isinstance(each, Mapping | list | tuple) and len(path) < MOST_DEPTH:
                waiting.append(((*path, name), each))
    return found


def _is_misspelt(name: object, value: object) -> bool:
    if not isinstance(name, str) or name == CONSTRAINTS or not _ALIKE.match(name):
        return False
    first = value[0] if isinstance(value, list | tuple) and value else value
    return bool(_get(first, "topologyKey"))


def template_reference(manifest: Mapping[str, Any]) -> str:
    """Kind and name of the object whose template this one takes, as a Rollout may; else empty."""
    ref = _get(_get(manifest, "spec"), "workloadRef")
    kind, name = _get(ref, "kind"), _get(ref, "name")
    return f"{kind} {name}" if isinstance(kind, str) and isinstance(name, str) else ""


def _add(found: SpreadParts, holder: Mapping[str, Any], root: Path) -> None:
    """Add what an object has, and then the objects that it holds."""
    kind = holder.get("kind")
    if isinstance(kind, str) and (kind in _UNREAD or kind == "Pod"):
        return
    template = _known_template(holder, root)
    known: set[Path] = {root}
    if template is not None:
        found.templates.append(template)
        known.add(template.path)
    # Kubernetes' own kinds hold no other template: what looks like one is misplaced.
    has_others = template is None or not is_own_kind(holder)
    waiting: list[tuple[Path, Any, tuple[Any, ...]]] = [(root, holder, ())]
    while waiting:
        path, part, around = waiting.pop()
        if len(path) > MOST_DEPTH or (template and path == (*template.path, "spec")):
            continue
        if isinstance(part, list | tuple):
            members = [((*path, at), each) for at, each in enumerate(part)]
        elif not isinstance(part, Mapping):
            continue
        elif has_others and path not in known and _is_object(part) and part["kind"] != "Pod":
            _add(found, part, path)
            continue
        elif has_others and path not in known and (_is_object(part) or _is_template(part)):
            found.templates.append(PodTemplate(path, part, holder, around))
            if CONSTRAINTS in part:  # beside its spec
                found.lists.append(ConstraintList((*path, CONSTRAINTS), part[CONSTRAINTS], holder))
            if isinstance(given := _get(part.get("spec"), _ONE), list):
                found.lists.append(ConstraintList((*path, "spec", _ONE), given, holder))
            continue
        else:
            # With a slash it is the key of a label or an annotation.
            named = {key: steps for key in part if (steps := _steps(key)) and "/" not in key}
            keys = [key for key, steps in named.items() if len(steps) == 1]
            keys += [_ONE] if has_others and isinstance(part.get(_ONE), list) else []
            if keys:
                found.lists.extend(ConstraintList((*path, key), part[key], holder) for key in keys)
            elif "value" in part and (steps := _steps(part.get("path", part.get("name")))):
                _add_set(found, part, path, holder, steps[1:])
                continue
            elif set_by := _sets_fields(part, named):
                # What sets the first of their fields stands for all, as of a list of parameters.
                found.lists.append(ConstraintList((*path, set_by), {"value": None}, holder))
            members = [
                ((*path, str(name)), each)
                for name, each in part.items()
                if name not in (*keys, "metadata") and (path != root or name != "status")
            ]
        inner = (*around, part)
        waiting += [
            (at, each, inner)
            for at, each in reversed(members)
            if isinstance(each, Mapping | list | tuple)
        ]


def _group_size(path: Path, around: tuple[Any, ...]) -> int | None:
    """How many pods of a LeaderWorkerSet's group are made of a template; None for other kinds."""
    size = _get(around[-1], "size") if around and path[-1] in _GROUP else None
    if not _is_count(size) or not size:
        return None
    if "leaderTemplate" not in around[-1]:
        return int(size)
    return 1 if path[-1] == "leaderTemplate" else int(size) - 1


def _known_template(holder: Mapping[str, Any], root: Path) -> PodTemplate | None:
    if not has_known_template(holder):
        return None
    return at_path(holder, root, own_path(str(holder.get("kind"))))


def at_path(holder: Mapping[str, Any], root: Path, path: Path) -> PodTemplate | None:
    """What is at a path of an object; None where nothing is."""
    parts: list[Any] = [holder]
    for name in path:
        parts.append(_get(parts[-1], name))
    *around, content = parts
    return None if content is None else PodTemplate(root + path, content, holder, tuple(around))


def _is_object(part: Mapping[str, Any]) -> bool:
    """Whether a part of an object is a whole one."""
    named = isinstance(part.get("kind"), str) and isinstance(part.get("apiVersion"), str)
    return named and ("spec" in part or "template" in part)


def _is_template(part: Mapping[str, Any]) -> bool:
    spec = part.get("spec")
    return isinstance(spec, Mapping) and ("containers" in spec or CONSTRAINTS in spec)


def _steps(path: object) -> list[str]:
    """Steps of a path, a key for example, from constraints on; none where it has none of these."""
    if not isinstance(path, str) or CONSTRAINTS not in path:
        return []
    steps = [each for each in _SEPARATORS.split(path) if each]
    return steps[steps.index(CONSTRAINTS) :] if CONSTRAINTS in steps else []


def _sets_fields(part: Mapping[Any, Any], named: Mapping[str, list[str]]) -> str:
    """The key of a mapping that sets fields of constraints; empty where none does.

    `named` has the steps of its keys that name constraints.
    """
    if _steps(part.get("location")):
        return "location"
    return next((key for key, (_, *below) in named.items() if _is_position(below[0])), "")


def _add_set(
    found: SpreadParts,
    part: Mapping[Any, Any],
    path: Path,
    holder: Mapping[str, Any],
    below: Sequence[str],
) -> None:
    """Add constraints that are set by a path; where it is fields of them, what sets the first."""
    given = part["value"]
    at = (*path, "value")
    is_one = bool(below) and _is_position(below[0])
    if not below or (is_one and len(below) == 1):
        found.lists.append(ConstraintList(at, [given] if below else given, holder))
        return
    if is_one and len(below) == 2 and "op" in part:
        found.lists.append(ConstraintList(at, [{below[1]: given}], holder, is_part=True))
        return
    last = found.lists[-1] if found.lists else None
    if last is None or last.path[:-1] != path[:-1]:
        found.lists.append(ConstraintList(path, part, holder))


def _is_position(step: str) -> bool:
    """Whether a step of a path is an element of a list, the one behind its end for example."""
    return step == "-" or step.isdecimal()


def _get(value: object, name: str | int) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None


def _group(version: object) -> str:
    return version.rpartition("/")[0] if isinstance(version, str) else ""


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
