"""A caller and its roles.

Roles: ``read`` sees state, ``decide`` asks for decisions, ``place`` holds nodes, ``write`` changes
what is known of a cluster, ``admin`` drops clusters. All include ``read``,
because their answers show state, and ``place`` includes ``decide``; ``admin`` includes all. A role
holds everywhere, or, as ``role@cluster``, for one cluster.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from topospread.errors import PermissionDenied

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


_NOWHERE: Final[frozenset[str]] = frozenset()


class Role(Enum):
    """A role of a caller; the value is its name."""

    READ = "read"
    DECIDE = "decide"
    PLACE = "place"
    WRITE = "write"
    ADMIN = "admin"


_INCLUDED: Final[Mapping[Role, frozenset[Role]]] = {
    Role.READ: frozenset({Role.READ}),
    Role.DECIDE: frozenset({Role.READ, Role.DECIDE}),
    Role.PLACE: frozenset({Role.READ, Role.DECIDE, Role.PLACE}),
    Role.WRITE: frozenset({Role.READ, Role.WRITE}),
    Role.ADMIN: frozenset(Role),
}


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller.

    Attributes:
        name: for the audit log.
        allowed: the clusters in which each role holds; None is all of them.
        expires: seconds since 1970 from which on it is unknown.
        credential: identifies its token or certificate, so that a new one makes another caller.
    """

    name: str
    allowed: Mapping[Role, frozenset[str] | None]
    expires: float = math.inf
    credential: bytes = field(default=b"", repr=False)

    def clusters(self, role: Role) -> frozenset[str] | None:
        """The clusters in which the caller has a role; None stands for all of them.

        Raises:
            PermissionDenied: nowhere.
        """
        clusters = self.allowed.get(role, _NOWHERE)
        if clusters is not None and not clusters:
            raise PermissionDenied(role.value)
        return clusters

    def check(self, role: Role, cluster: str) -> None:
        """See whether a role holds in a cluster.

        Raises:
            PermissionDenied: it does not.
        """
        clusters = self.clusters(role)
        if clusters is not None and cluster not in clusters:
            raise PermissionDenied(role.value, cluster)

    def check_everywhere(self, role: Role) -> None:
        """See whether a role is bound to no cluster.

        Raises:
            PermissionDenied: it is, or is missing.
        """
        if self.clusters(role) is not None:
            raise PermissionDenied(role.value, where=" for all clusters")

    def may(self, role: Role, cluster: str) -> bool:
        """Whether a role holds in a cluster."""
        clusters = self.allowed.get(role, _NOWHERE)
        return clusters is None or cluster in clusters

    def may_everywhere(self, role: Role) -> bool:
        """Whether a role is bound to no cluster."""
        return self.allowed.get(role, _NOWHERE) is None


def roles_of(grants: Iterable[tuple[Role, str | None]]) -> dict[Role, frozenset[str] | None]:
    """The clusters in which a caller has each role; None stands for all of them."""
    found: dict[Role, frozenset[str] | None] = {}
    for granted, cluster in grants:
        for role in _INCLUDED[granted]:
            so_far = found.get(role, _NOWHERE)
            found[role] = None if cluster is None or so_far is None else so_far | {cluster}
    return found


ANONYMOUS: Final = Caller("", roles_of((role, None) for role in Role))
"""The caller where no access file is configured."""
