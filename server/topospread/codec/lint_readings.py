"""Pod templates that are read without their values of a wrong type, and paths in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from topospread.codec.lint_manifests import IGNORE_ANNOTATION
from topospread.errors import FieldViolation
from topospread_client import ManifestError, PodTemplate, pod_from_template

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread_proto.kubernetes.v1 import kubernetes_pb2 as k8s

Manifest = Mapping[str, Any]

_INDEX: Final = re.compile(r"\[(\d+)\]")

_MOST_WRONG: Final = 20
_MOST_WRONG_OF_OBJECT: Final = 100
"""Values of a wrong type that are found in one template, and in all of an object; each takes as
long as reading its template.
"""


@dataclass(slots=True)
class TemplateReading:
    """A pod template that is read without its values of a wrong type.

    Attributes:
        template: without those that were found.
        most: values that are left out, at most; each takes as long as reading the template.
        wrong: where they are in the object, and what is wrong.
        has_more: there are more than these.
    """

    template: PodTemplate
    most: int
    wrong: list[FieldViolation] = field(default_factory=list)
    has_more: bool = False

    def read(self) -> k8s.Pod | None:
        """The pod that it would make, with known labels alone; None where it cannot be read."""
        while True:
            try:
                return pod_from_template(self.template, known_labels_only=True)
            except ManifestError as error:
                if any(each.field == error.path for each in self.wrong):
                    return None
                if len(self.wrong) == self.most:
                    self.has_more = True
                    return None
                self.wrong.append(FieldViolation(error.path, error.message))
                if not self._leave_out(error.path):
                    return None

    def _leave_out(self, path: str) -> bool:
        """Go on without what is at a path of the object; False where that cannot be."""
        template = self.template
        if (steps := _steps_below(template.text, template.content, path)) is not None:
            self.template = template._replace(content=_without(template.content, steps))
            return bool(steps)
        *around, owner = template.around or (None,)
        if (steps := _steps_below(template.owner_text, owner, path)) is not None:
            self.template = template._replace(around=(*around, _without(owner, steps)))
            return bool(steps)
        if (steps := steps_at(template.holder, path)) is not None:
            self.template = template._replace(holder=_without(template.holder, steps))
            return bool(steps)
        return False


@dataclass(slots=True)
class TemplateReader:
    """Reads the templates of one object; what is wrong with what they share is found once.

    Attributes:
        left: values of a wrong type that may still be found.
        holders: what is read of those that were read already, by their ids.
    """

    left: int = _MOST_WRONG_OF_OBJECT
    holders: dict[int, Manifest] = field(default_factory=dict)

    def read(self, template: PodTemplate) -> tuple[TemplateReading, k8s.Pod | None]:
        """Read a template: what is left of it, and the pod that it would make."""
        holder = self.holders.get(id(template.holder), template.holder)
        reading = TemplateReading(template._replace(holder=holder), min(self.left, _MOST_WRONG))
        pod = reading.read()
        self.left -= len(reading.wrong)
        if holder is template.holder:
            self.holders[id(holder)] = _with_least_metadata(reading.template.holder)
        return reading, pod


def _with_least_metadata(holder: Manifest) -> Manifest:
    """An object with what its pods have of its metadata, and what it silences."""
    metadata = holder.get("metadata")
    if not isinstance(metadata, Mapping):
        return holder
    kept = {name: metadata[name] for name in ("name", "namespace", "uid") if name in metadata}
    annotations = metadata.get("annotations")
    if isinstance(annotations, Mapping) and IGNORE_ANNOTATION in annotations:
        kept["annotations"] = {IGNORE_ANNOTATION: annotations[IGNORE_ANNOTATION]}
    return {**holder, "metadata": kept}


def _steps_below(root: str, content: object, path: str) -> list[str | int] | None:
    """Steps of a path below the root of a content; None where it is not below it."""
    rest = path.removeprefix(root) if root else f".{path}"
    if not path.startswith(root) or rest[:1] not in ("", ".", "["):
        return None
    return steps_at(content, rest.removeprefix("."))


def steps_at(content: object, path: str) -> list[str | int] | None:
    """Keys and positions of a path as kubectl prints it; None where the content has no such path.

    Keys of maps stand in brackets, too: ``labels[app]``.
    """
    steps, rest = known_steps(content, path)
    return None if rest else steps


def known_steps(content: object, path: str) -> tuple[list[str | int], str]:
    """As many steps of a path as the content has, and the rest of the path."""
    steps: list[str | int] = []
    at: Any = content
    while path:
        if isinstance(at, list | tuple):
            found = _INDEX.match(path)
            step: Any = int(found[1]) if found else None
            if found is None or step >= len(at):
                break
            end = found.end()
        elif isinstance(at, Mapping):
            ends = [
                (len(text), key)
                for key in at
                for text in (f"[{key}]", f".{key}", *(() if steps else (str(key),)))
                if path.startswith(text) and path[len(text) : len(text) + 1] in ("", ".", "[")
            ]
            if not ends:
                break
            end, step = max(ends, key=lambda each: each[0])
        else:
            break
        steps.append(step)
        at, path = at[step], path[end:]
    return steps, path


def _without(content: Any, steps: Sequence[str | int]) -> Any:
    """A copy where nothing is at a path; lists keep their length."""
    if not steps:
        return None
    first, *rest = steps
    if isinstance(content, list | tuple):
        return [_without(each, rest) if n == first else each for n, each in enumerate(content)]
    return {**content, first: _without(content[first], rest)}


def value_at(template: PodTemplate, path: str) -> object:
    """What is at a path of a template's object; None where nothing is."""
    owner = template.around[-1] if template.around else None
    of_template = (template.text, template.content), (template.owner_text, owner)
    for root, content in (*of_template, ("", template.holder)):
        if (steps := _steps_below(root, content, path)) is not None:
            value: Any = content
            for step in steps:
                value = value[step]
            return value
    return None
