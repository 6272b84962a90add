"""References to pods, objects and versions, in requests and responses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from topospread_client import _arguments as arguments
from topospread_client._enums import Kind
from topospread_client._errors import invalid
from topospread_proto.v1 import cluster_state_service_pb2 as state
from topospread_proto.v1 import common_pb2 as common

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class PodReference:
    """Reference to a pod of the state.

    Attributes:
        namespace: None means ``default``.
        uid: None for any pod of that name.
    """

    name: str
    namespace: str | None = None
    uid: str | None = None

    @property
    def full_name(self) -> str:
        """Namespace and name: ``NAMESPACE/NAME``."""
        return f"{self.namespace or 'default'}/{self.name}"

    @classmethod
    def of(cls, named: PodReference | str) -> Self:
        """Make a reference from ``NAMESPACE/NAME`` or ``NAME``.

        Raises:
            InvalidRequest: an argument of another type, or a text of another form.
        """
        if isinstance(named, str):
            return cls(*_name_and_namespace(named, "pod"))
        named = arguments.checked(PodReference, named, "pod")
        return cls(named.name, named.namespace, named.uid)

    def message(self, path: str) -> common.PodReference:
        """Message of the request."""
        return arguments.part(
            path,
            common.PodReference,
            namespace=self.namespace or "",
            name=self.name,
            uid=self.uid or "",
        )


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """Reference to an object; `uid` and `resource_version`, when given, must be those stored."""

    kind: Kind
    name: str
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None

    def message(self, path: str) -> state.ObjectReference:
        """Message of the request."""
        return arguments.part(
            path,
            state.ObjectReference,
            kind=kind_message(self.kind, f"{path}.kind"),
            namespace=self.namespace or "",
            name=self.name,
            uid=self.uid or "",
            resource_version=self.resource_version or "",
        )


@dataclass(frozen=True, slots=True)
class ResourceVersion:
    """Version of the API server: decimal digits, compared as a number with others of its kind."""

    kind: Kind
    resource_version: str

    def message(self, path: str) -> common.ResourceVersion:
        """Message of the request."""
        return arguments.part(
            path,
            common.ResourceVersion,
            kind=kind_message(self.kind, f"{path}.kind"),
            resource_version=self.resource_version,
        )


def kind_message(kind: Kind, path: str) -> common.Kind.ValueType:
    """Message of a kind."""
    made: common.Kind.ValueType = arguments.enum_value(common.Kind, Kind, kind, path)
    return made


def _name_and_namespace(named: str, path: str) -> tuple[str, str | None]:
    if named.count("/") > 1:
        raise invalid(path, f"{named[:200]!r} is no name of a pod: write NAMESPACE/NAME")
    namespace, _, name = named.rpartition("/")
    return name, namespace or None


def pod_reference(named: PodReference | str, path: str = "pod") -> common.PodReference:
    """Message of a reference to a pod."""
    if isinstance(named, str):
        named = PodReference(*_name_and_namespace(named, path))
    if not isinstance(named, PodReference):
        raise arguments.type_violation(path, "PodReference", named)
    return named.message(path)


def versions(several: Iterable[ResourceVersion], path: str) -> list[common.ResourceVersion]:
    """Messages of versions."""
    return [
        arguments.checked(ResourceVersion, each, where).message(where)
        for where, each in arguments.with_paths(several, path)
    ]
