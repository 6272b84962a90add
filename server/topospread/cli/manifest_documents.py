"""Documents of YAML or JSON → Kubernetes manifests with their positions.

They are read as kubectl prints them and people write them: several documents, and List kinds.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from topospread.cli.errors import BadInput, printable
from topospread.cli.json_values import json_parts
from topospread.cli.yaml_values import yaml_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from topospread.cli.json_values import Part

MAX_BYTES: Final = 512 << 20
"""Bytes of JSON that one command reads: some 50,000 pods, which take some gigabytes of memory."""

YAML_WEIGHT: Final = 8
"""Bytes of JSON that a byte of YAML counts as, because it takes about that much memory."""

MAX_NESTED_LISTS: Final = 8
"""Depth of lists within lists; kubectl makes none."""

_OF_OBJECTS: Final = frozenset({"apiVersion", "items", "metadata", "spec"})
"""What objects have, one of these at least, and values of charts hardly ever."""


class NotManifest(BadInput):
    """A file of YAML or JSON that has no object of Kubernetes."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object of a file.

    Attributes:
        source: file and line, for example ``pods.yaml:12``.
        is_listed: it stands in a List.
        template: path of the pod template that is meant, of an object with several.
    """

    content: dict[str, Any]
    source: str
    is_listed: bool = False
    template: str = ""

    @property
    def kind(self) -> str:
        """Kind of the object."""
        return str(self.content.get("kind") or "")

    @property
    def label(self) -> str:
        """Kind and name for a person, for example ``Pod prod/web-0``."""
        metadata = self.content.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        name = metadata.get("name") or metadata.get("generateName") or "without a name"
        namespace = metadata.get("namespace")
        full_name = f"{namespace}/{name}" if namespace else name
        template = f" {self.template}" if self.template else ""
        return printable(f"{self.kind} {full_name}{template}".strip())

    @property
    def title(self) -> str:
        """Source and label, which begin error messages about the object."""
        return f"{self.source}: {self.label}"


def parts_of(content: bytes, source: str, *, lined: bool = False) -> list[Part]:
    """The documents of a text, and the items of its Lists.

    Raises:
        BadInput: it is neither JSON nor YAML, or has a text that stands for something else.
    """

    def of_yaml() -> list[Part]:
        return list(yaml_parts(BytesIO(content), source, lined=lined))

    try:
        if not looks_like_json(content):
            parts = of_yaml()
            text = any(isinstance(value, str) for value, *_ in parts)
            if text and (hint := _text_hint(content)):
                raise NotManifest(f"{source}: {hint}")
            return parts
        try:
            return list(json_parts(BytesIO(content), source, at_once=True))
        except BadInput as error:
            # YAML may look like JSON; what is neither is told as of JSON.
            if len(content) * YAML_WEIGHT > MAX_BYTES:
                raise
            try:
                return of_yaml()
            except BadInput:
                raise error from None
    except BadInput as error:
        if not isinstance(error, NotManifest) and (hint := _text_hint(content)):
            raise BadInput(f"{error.message}: {hint}") from error
        raise


def manifests_of(
    parts: Iterable[Part],
    source: str,
    lists: set[str] | None = None,
    kindless: Callable[[dict[str, Any]], bool] | None = None,
) -> Iterator[Manifest]:
    """The objects of a file's parts, in order; `lists` and `kindless` are as of `read`."""
    items: list[tuple[Any, int]] = []
    for value, line, listed in parts:
        if listed is not None:
            items.append((value, line))
        elif value is not None:
            if items and not is_list(value):
                value["items"] = [item for item, _ in items]
                items = []
            for item, at in items:
                yield from objects_of(typed_item(item, value), f"{source}:{at}", 1, lists)
            items = []
            if kindless and is_values(value):
                has_kind = value.pop("kind", None) is not None
                if kindless(value):
                    yield Manifest(value, f"{source}:{line}")
                    continue
                if has_kind:
                    raise NotManifest(_no_object(f"{source}:{line}", "apiVersion"))
            if kindless and _is_json_patch(value):
                if kindless(patch := {"patch": value}):
                    yield Manifest(patch, f"{source}:{line}")
                continue
            yield from objects_of(value, f"{source}:{line}", 0, lists)


def is_values(value: object) -> bool:
    """Whether it is no object of Kubernetes: values of a chart, one of which may be a kind."""
    if not isinstance(value, dict):
        return False
    return "kind" not in value or not value.keys() & _OF_OBJECTS


def _no_object(source: str, lacking: str) -> str:
    hint = _name_hint(source.rpartition(":")[0]) or "is it a Kubernetes manifest?"
    return f"{source}: this object has no `{lacking}`: {hint}"


def _is_json_patch(value: object) -> bool:
    """Whether it is a list of operations (RFC 6902), as files of kustomize are."""
    if not isinstance(value, list):
        return False
    return all(isinstance(each, dict) and "op" in each and "path" in each for each in value)


def objects_of(
    document: Any, source: str, depth: int, lists: set[str] | None
) -> Iterator[Manifest]:
    """The object that a document is, or those of a List, which `depth` others are around."""
    if not isinstance(document, dict):
        text = (
            f"{source}: expected a Kubernetes object, found {_described(document)}: `kubectl get"
            " -o json` prints them as a List"
        )
        raise NotManifest(text) if depth == 0 else BadInput(text)
    kind = document.get("kind")
    if not isinstance(kind, str) or not kind:
        if "apiVersion" in document and "items" in document:
            raise BadInput(
                f"{source}: this list has no `kind`, which kubectl writes behind its items: was it"
                " cut?"
            )
        text = _no_object(source, "kind")
        of_others = "apiVersion" not in document or _name_hint(source.rpartition(":")[0])
        raise NotManifest(text) if depth == 0 and of_others else BadInput(text)
    if kind == "Status" and document.get("status") == "Failure":
        said = document.get("message")
        raise BadInput(f"{source}: it is an API server's refusal, and no objects: {said}")
    if not is_list(document):
        yield Manifest(document, source, is_listed=depth > 0)
        return
    items = document["items"]
    metadata = document.get("metadata")
    is_page = isinstance(metadata, dict) and metadata.get("continue")
    if lists is not None and not is_page and kind != "List":
        lists.add(kind.removesuffix("List"))
    if items is None:
        return
    if depth == MAX_NESTED_LISTS:
        raise BadInput(f"{source}: lists within lists, more than {MAX_NESTED_LISTS} deep")
    if not isinstance(items, list):
        raise BadInput(f"{source}: the items of a {kind} must be a list, found {_described(items)}")
    for position, item in enumerate(items):
        at = f"{source} items[{position}]"
        yield from objects_of(typed_item(item, document), at, depth + 1, lists)


def is_list(document: Mapping[str, Any]) -> bool:
    """Whether an object is a List, of one kind or of any."""
    kind = document.get("kind")
    return isinstance(kind, str) and kind.endswith("List") and "items" in document


def typed_item(item: Any, listed: Mapping[str, Any]) -> Any:
    """An item with its kind: the API itself leaves kind and apiVersion out of a typed list's."""
    kind = listed.get("kind")
    if not isinstance(item, dict) or "kind" in item or not isinstance(kind, str) or kind == "List":
        return item
    return {"apiVersion": listed.get("apiVersion"), "kind": kind.removesuffix("List"), **item}


def _described(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "an object"
    names = {list: "a list", str: "a text", bool: "a truth value"}
    return names.get(type(value), "a number")


def looks_like_json(content: bytes) -> bool:
    """Whether a text begins as JSON does; YAML may, too."""
    return content.lstrip()[:1] in (b"{", b"[")


def _text_hint(content: bytes) -> str:
    from topospread.cli.other_texts import text_hint  # only for errors

    return text_hint(content)


def _name_hint(path: str) -> str:
    from topospread.cli.other_texts import name_hint  # only for errors

    return name_hint(path)
