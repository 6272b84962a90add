"""How pods, objects and versions are named, in requests and in answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from topospread_client import _given as given
from topospread_client._enums import Kind
from topospread_proto.v1 import cluster_state_service_pb2 as state
from topospread_proto.v1 import common_pb2 as common

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class PodReference:
    """Names a pod of the state.

    Attributes:
        namespace: None means ``default``.
        uid: None means whichever pod has the name.
    """

    name: str
    namespace: str | None = None
    uid: str | None = None

    @property
    def full_name(self) -> str:
        """As ``NAMESPACE/NAME``."""
        return f"{self.namespace or 'default'}/{self.name}"

    @classmethod
    def of(cls, named: PodReference | str) -> Self:
        """The same from ``NAMESPACE/NAME`` or ``NAME``."""
        if isinstance(named, str):
            namespace, _, name = named.rpartition("/")
            return cls(name, namespace or None)
        return cls(named.name, named.namespace, named.uid)

    def message(self, path: str) -> common.PodReference:
        """As the request carries it."""
        return given.part(
            path,
            common.PodReference,
            namespace=self.namespace or "",
            name=self.name,
            uid=self.uid or "",
        )


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """Names an object; `uid` and `resource_version`, when given, must be those stored."""

    kind: Kind
    name: str
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None

    def message(self, path: str) -> state.ObjectReference:
        """As the request carries it."""
        return given.part(
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
    """A version of the API server: decimal digits, compared as a number with others of its kind."""

    kind: Kind
    resource_version: str

    def message(self, path: str) -> common.ResourceVersion:
        """As the request carries it."""
        return given.part(
            path,
            common.ResourceVersion,
            kind=kind_message(self.kind, f"{path}.kind"),
            resource_version=self.resource_version,
        )


def kind_message(kind: Kind, path: str) -> common.Kind.ValueType:
    """A kind as requests carry it."""
    made: common.Kind.ValueType = given.member(common.Kind, Kind, kind, path)
    return made


def pod_reference(named: PodReference | str, path: str = "pod") -> common.PodReference:
    """A pod's name as requests carry it."""
    if not isinstance(named, PodReference | str):
        raise given.unexpected(path, "PodReference", named)
    return PodReference.of(named).message(path)


def versions(several: Iterable[ResourceVersion], path: str) -> list[common.ResourceVersion]:
    """Versions as requests carry them."""
    return [
        given.expect(ResourceVersion, each, where).message(where)
        for where, each in given.each(several, path)
    ]
