"""Versions of Kubernetes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Iterable

# Of a release ("1.37"), of binaries ("v1.37.2-eks-1-37-4", "v1.38.0-alpha.1+k3s1"), and as some API
# servers write their minor version ("37+").
_WRITTEN: Final = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:[.+\-].{0,200})?", re.DOTALL | re.ASCII)


class KubernetesVersion(NamedTuple):
    """A minor version, in whose patches scheduling does not change; compared as numbers."""

    major: int
    minor: int

    @override
    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


def parse_version(text: str) -> KubernetesVersion | None:
    """Read ``1.37``, or what a binary says of itself: ``v1.37.2``; None where it is neither."""
    found = _WRITTEN.fullmatch(text)
    return None if found is None else KubernetesVersion(int(found[1]), int(found[2]))


def oldest_version(texts: Iterable[str]) -> KubernetesVersion | None:
    """The oldest of those that can be read; None without any."""
    found = (parse_version(text) for text in texts)
    return min((version for version in found if version is not None), default=None)
