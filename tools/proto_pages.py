"""Reference pages of the API, written from the .proto files and their comments.

A page for each file: its services with their methods, its messages with their fields, its enums.
`tools.docs_site` puts them into the site.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodOptions,
    ServiceDescriptorProto,
)

from hatch_build import PROTO_ROOT, PUBLISHED, include_path, protoc

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[1]
PROTOS: Final = ROOT / PROTO_ROOT

# Numbers of fields in descriptor.proto, of which the paths of comments are made.
_SYNTAX, _MESSAGES, _ENUMS, _SERVICES = 12, 4, 5, 6
_FIELDS, _NESTED_MESSAGES, _NESTED_ENUMS, _ONEOFS = 2, 3, 4, 8
_METHODS = _VALUES = 2

_LEVELS: Final = {
    MethodOptions.NO_SIDE_EFFECTS: "Reads only.",
    MethodOptions.IDEMPOTENT: "May be sent twice.",
}
_MARKUP: Final = re.compile(r"(`[^`]*`)|([\\<>|*_\[\]])")


class Page(NamedTuple):
    """One page of the reference.

    Attributes:
        path: below the site's root, without a suffix.
        title: as it stands in the navigation.
        text: in MyST's Markdown.
    """

    path: str
    title: str
    text: str


def pages() -> list[Page]:
    """The pages of all published .proto files, those with services first."""
    described = _described()
    ours = {file.name for file in described.file if file.package.startswith("topospread.")}
    files = [_File(file) for file in described.file if file.name in ours]
    files.sort(key=lambda each: (not each.services, "kubernetes" in each.name, each.name))
    return [each.page() for each in files]


def page_path(proto: str) -> str:
    """Where the page of a .proto file is, which is named from `proto/`."""
    return f"reference/{proto.removesuffix('.proto').replace('/', '.')}"


def _described() -> FileDescriptorSet:
    files = [file for each in PUBLISHED for file in sorted((PROTOS / each.protos).glob("*.proto"))]
    with tempfile.TemporaryDirectory(prefix="topospread-proto-") as made:
        target = Path(made) / "described.binpb"
        protoc(
            *include_path(PROTOS),
            f"--descriptor_set_out={target}",
            "--include_imports",
            "--include_source_info",
            *(file.relative_to(PROTOS).as_posix() for file in files),
        )
        return FileDescriptorSet.FromString(target.read_bytes())


class _File:
    def __init__(self, file: FileDescriptorProto) -> None:
        self.name = file.name
        self.services = file.service
        self._file = file
        self._comments = {
            tuple(each.path): each.leading_comments or each.trailing_comments
            for each in file.source_code_info.location
        }

    def page(self) -> Page:
        title = ", ".join(each.name for each in self.services) or self.name.rpartition("/")[2]
        return Page(page_path(self.name), title, "\n".join(self._lines(title)))

    def _lines(self, title: str) -> Iterator[str]:
        yield f"# {title}\n"
        yield f"`{self.name}`, package `{self._file.package}`.\n"
        yield self._text(_SYNTAX)
        for at, service in enumerate(self.services):
            yield from self._service(service, (_SERVICES, at), alone=len(self.services) == 1)
        if self._file.message_type:
            yield "## Messages\n"
        for at, message in enumerate(self._file.message_type):
            yield from self._message(message, (_MESSAGES, at), self._file.package)
        if self._file.enum_type:
            yield "## Enums\n"
        for at, enum in enumerate(self._file.enum_type):
            yield from self._enum(enum, (_ENUMS, at), self._file.package)

    def _service(
        self, service: ServiceDescriptorProto, path: tuple[int, ...], *, alone: bool
    ) -> Iterator[str]:
        name = f"{self._file.package}.{service.name}"
        yield f"({name})="
        yield f"## {'Methods' if alone else service.name}\n"
        yield self._text(*path)
        for at, method in enumerate(service.method):
            yield f"({name}.{method.name})="
            yield f"### {method.name}\n"
            asked = _streamed(_linked(method.input_type), streams=method.client_streaming)
            answered = _streamed(_linked(method.output_type), streams=method.server_streaming)
            level = _LEVELS.get(method.options.idempotency_level, "")
            yield f"{asked} → {answered}. {level}\n"
            yield self._text(*path, _METHODS, at)

    def _message(
        self, message: DescriptorProto, path: tuple[int, ...], scope: str
    ) -> Iterator[str]:
        name = f"{scope}.{message.name}"
        yield from self._heading(name)
        yield self._text(*path)
        maps = {
            f".{name}.{each.name}": each for each in message.nested_type if each.options.map_entry
        }
        if message.field:
            yield "| field | type | number | |"
            yield "|---|---|---|---|"
        for at, field in enumerate(message.field):
            yield (
                f"| `{field.name}` | {_type_of(field, message, maps)} | {field.number} "
                f"| {self._cell(*path, _FIELDS, at)} |"
            )
        yield ""
        for at, oneof in enumerate(message.oneof_decl):
            comment = self._text(*path, _ONEOFS, at)
            if comment:
                yield f"One of `{oneof.name}`: {comment}"
        for at, nested in enumerate(message.nested_type):
            if not nested.options.map_entry:
                yield from self._message(nested, (*path, _NESTED_MESSAGES, at), name)
        for at, enum in enumerate(message.enum_type):
            yield from self._enum(enum, (*path, _NESTED_ENUMS, at), name)

    def _enum(self, enum: EnumDescriptorProto, path: tuple[int, ...], scope: str) -> Iterator[str]:
        yield from self._heading(f"{scope}.{enum.name}")
        yield self._text(*path)
        yield "| value | number | |"
        yield "|---|---|---|"
        for at, value in enumerate(enum.value):
            yield f"| `{value.name}` | {value.number} | {self._cell(*path, _VALUES, at)} |"
        yield ""

    def _heading(self, name: str) -> Iterator[str]:
        yield f"({name})="
        yield f"### {name.removeprefix(self._file.package + '.')}\n"

    def _text(self, *path: int) -> str:
        """What stands above a declaration, as Markdown: paragraphs, an empty line after each."""
        comment = self._comments.get(path, "")
        lines = [line.removeprefix(" ") for line in comment.splitlines()]
        return _escaped("\n".join(lines)).strip() + "\n" if comment.strip() else ""

    def _cell(self, *path: int) -> str:
        return " ".join(self._text(*path).split())


def _type_of(
    field: FieldDescriptorProto, message: DescriptorProto, maps: dict[str, DescriptorProto]
) -> str:
    entry = maps.get(field.type_name)
    if entry:
        key, value = (_plain_type(each) for each in entry.field)
        return f"map of {key} to {value}"
    plain = _plain_type(field)
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"repeated {plain}"
    if field.proto3_optional:
        return f"optional {plain}"
    if field.HasField("oneof_index"):
        return f"{plain}, one of `{message.oneof_decl[field.oneof_index].name}`"
    return plain


def _plain_type(field: FieldDescriptorProto) -> str:
    if field.type_name:
        return _linked(field.type_name)
    return FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()


def _linked(type_name: str) -> str:
    """The name of a message or an enum, with a link to it if it is ours."""
    name = type_name.removeprefix(".")
    short = re.sub(r"^topospread\.\w+(\.v\d+)?\.", "", name)
    return f"[{short}](#{name})" if name.startswith("topospread.") else f"`{name}`"


def _streamed(name: str, *, streams: bool) -> str:
    return f"stream of {name}" if streams else name


def _escaped(text: str) -> str:
    """Markdown that reads as the text, but for what stands in backticks."""
    return _MARKUP.sub(lambda found: found[1] or f"\\{found[2]}", text)
