"""PodTopologySpreadArgs of a request to a profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread.codec.pods import constraint_from_proto
from topospread.errors import InvalidRequest
from topospread.kube.validation import validate_args
from topospread.kube.violations import violations_text
from topospread.spread.settings import DEFAULT_PROFILE, SYSTEM, Profile

if TYPE_CHECKING:
    from topospread_proto.v1.common_pb2 import PodTopologySpreadArgs


def profile_from_proto(args: PodTopologySpreadArgs, name: str = DEFAULT_PROFILE) -> Profile:
    """The profile that these arguments make.

    Args:
        args: as a request carries them; an empty defaultingType acts as System.
        name: the profile's name, for metrics.

    Raises:
        InvalidRequest: the plugin would refuse them; fields as kube-scheduler names them.
    """
    constraints = tuple(map(constraint_from_proto, args.default_constraints))
    violations = validate_args(args.defaulting_type, constraints)
    if violations:
        raise InvalidRequest(violations_text(violations), violations)
    return Profile(name, args.defaulting_type or SYSTEM, constraints)
