"""Where objects of any kind have pod templates and topologySpreadConstraints.

A pod template is a mapping whose `spec` has containers or topologySpreadConstraints, or a Pod that
an object holds. Kubernetes' own kinds have theirs at a known place; in other kinds it is looked
for, also in the objects that they hold. Metadata and status are not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

Path: TypeAlias = "tuple[str | int, ...]"
"""Keys of objects and positions in lists, from the outermost."""

CONSTRAINTS: Final = "topologySpreadConstraints"

_ANCHORED: Final = f"({CONSTRAINTS})"
"""Ends the key of constraints in a pattern of a policy: ``+(topologySpreadConstraints)``."""

_SEPARATORS: Final = re.compile(r"[/.\[\]:]+")
"""Between the steps of paths of JSON patches, of Istio's overlays and of Helm's parameters."""

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
    """

    path: Path
    content: Any
    holder: Mapping[str, Any]

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
            continue
        else:
            key = _key_of_constraints(part)
            if key:
                found.lists.append(ConstraintList((*path, key), part[key], holder))
            elif _sets_constraints(part):
                _add_set(found, part, path, holder)
                continue
            members = [
                ((*path, str(name)), each)
                for name, each in part.items()
                if name not in (key, "metadata") and (path != root or name != "status")
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


def _key_of_constraints(part: Mapping[Any, Any]) -> str:
    """The key of constraints in a mapping, as it is or with an anchor of a policy; else empty."""
    if CONSTRAINTS in part:
        return CONSTRAINTS
    return next((key for key in part if isinstance(key, str) and key.endswith(_ANCHORED)), "")


def _sets_constraints(part: Mapping[Any, Any]) -> bool:
    """Whether it sets constraints by path or name, as a JSON patch or a chart's parameter does."""
    name = part.get("path", part.get("name"))
    return isinstance(name, str) and CONSTRAINTS in _SEPARATORS.split(name) and "value" in part


def _add_set(
    found: SpreadParts, part: Mapping[Any, Any], path: Path, holder: Mapping[str, Any]
) -> None:
    """Add constraints that are set by a path; where it is fields of them, what sets the first."""
    steps = [each for each in _SEPARATORS.split(part.get("path", part.get("name"))) if each]
    given, below = part["value"], steps[steps.index(CONSTRAINTS) + 1 :]
    if not below or below == ["-"] or (len(below) == 1 and below[0].isdecimal()):
        listed = [given] if isinstance(given, Mapping) else given
        found.lists.append(ConstraintList((*path, "value"), listed, holder))
        return
    last = found.lists[-1] if found.lists else None
    if last is None or last.path[:-1] != path[:-1]:
        found.lists.append(ConstraintList(path, part, holder))


def _get(value: object, name: str | int) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None


def _group(version: object) -> str:
    return version.rpartition("/")[0] if isinstance(version, str) else ""


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
