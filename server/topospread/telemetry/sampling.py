"""Which calls are recorded: the specification's samplers, as numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from topospread.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_RATIO: Final = 0.01


@dataclass(frozen=True, slots=True)
class Sampling:
    """A sampler of the specification, as numbers.

    Attributes:
        bound: a call is sampled when the lower 64 bits of its trace id are below it: 0 never,
            2**64 always.
        parent_based: a caller's own decision goes before it.
    """

    bound: int
    parent_based: bool

    @classmethod
    def ratio(cls, ratio: float, *, parent_based: bool = True) -> Sampling:
        """Sample this share of the traces, 0 to 1."""
        return cls(round(ratio * 2**64), parent_based)


def sampling_from_environment(environ: Mapping[str, str]) -> Sampling:
    """What OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG ask for.

    Raises:
        ConfigError: they ask for what does not exist.
    """
    name = environ.get("OTEL_TRACES_SAMPLER", "").strip().lower() or "parentbased_traceidratio"
    argument = environ.get("OTEL_TRACES_SAMPLER_ARG", "").strip()
    root = name.removeprefix("parentbased_")
    parent_based = root != name
    if root == "always_on":
        return Sampling.ratio(1.0, parent_based=parent_based)
    if root == "always_off":
        return Sampling.ratio(0.0, parent_based=parent_based)
    if root != "traceidratio":
        raise ConfigError(
            f"OTEL_TRACES_SAMPLER: {name!r} is not a sampler; use always_on, always_off or"
            " traceidratio, each also with parentbased_ before it"
        )
    try:
        ratio = float(argument) if argument else DEFAULT_RATIO
    except ValueError:
        ratio = -1.0
    if not 0.0 <= ratio <= 1.0:
        raise ConfigError(f"OTEL_TRACES_SAMPLER_ARG: {argument!r} is not a number from 0 to 1")
    return Sampling.ratio(ratio, parent_based=parent_based)
