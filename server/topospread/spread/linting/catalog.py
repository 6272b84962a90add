"""What lint finds: how grave it is, what it means, and how to mend it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Severity(Enum):
    """How grave a finding is; in order, the gravest first.

    Attributes:
        ERROR: it is refused, it cannot do what it says, or pods or rollouts wait forever.
        WARNING: it probably does something else than its author meant.
        INFO: worth knowing.
    """

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """0 for the gravest."""
        return _ORDER.index(self)

    def at_least(self, other: Severity) -> bool:
        """Whether it is as grave as another, or graver."""
        return self.rank <= other.rank


_ORDER: Final = tuple(Severity)


@dataclass(frozen=True, slots=True, eq=False)
class LintRule:
    """One kind of finding; it is declared beside the function that finds it.

    Attributes:
        name: as FindingCode has it in the API.
        severity: where a finding does not have its own.
        summary: what is wrong, without numbers.
        mend: what to do about it.
    """

    name: str
    severity: Severity
    summary: str
    mend: str

    @property
    def code(self) -> str:
        """The code that people read and write, for example SelfMismatch."""
        return self.name.title().replace("_", "")

    def found(
        self,
        constraint: int,
        text: str,
        severity: Severity | None = None,
        *,
        field: str = "",
        mend: str = "",
    ) -> LintFinding:
        """A finding, as grave as the rule says and with its mend unless told otherwise."""
        return LintFinding(
            self, severity or self.severity, constraint, text, field, mend or self.mend
        )


@dataclass(frozen=True, slots=True)
class LintFinding:
    """One finding on a workload.

    Attributes:
        severity: as found here; knowledge of a cluster may make it graver.
        constraint: index in the pod's list; −1 for the workload as a whole.
        text: what is wrong, with the object's own numbers.
        field: path in the object of what it is about; empty for the constraint or the workload.
        mend: what to do about it here.
    """

    rule: LintRule
    severity: Severity
    constraint: int
    text: str
    field: str
    mend: str

    @property
    def code(self) -> str:
        """The rule's."""
        return self.rule.code


_DECLARED: Final[list[LintRule]] = []


def rule(name: str, severity: Severity, summary: str, mend: str) -> LintRule:
    """Declare a rule."""
    made = LintRule(name, severity, summary, mend)
    _DECLARED.append(made)
    return made


def declared_rules() -> dict[str, LintRule]:
    """All rules of the modules that were imported, by name; the gravest first, then by code."""
    order = sorted(_DECLARED, key=lambda each: (each.severity.rank, each.code))
    return {each.name: each for each in order}
