"""Which nodes take a pod: node selector and required node affinity, and what taints are.

Source: component-helpers' ``nodeaffinity`` package, upstream facts 20 and 21. Affinity that does
not parse is dropped here, once, so that matching cannot fail: upstream skips such a term, too, and
the others still count.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from typing_extensions import override

from topospread.checkpoints import checkpoint
from topospread.kube.selectors import IN, NOT_IN, Requirement, SelectorError, compile_requirement

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topospread.kube.objects import NodeExpression, NodeRequirements, NodeTerm, Taint


NAME_FIELD: Final = "metadata.name"
"""The only field that nodes can be selected by; others have the value ``""``."""

NodeLabelRequirement = Requirement
"""A condition on a node's label or field: ``key`` and ``accepts(value)``."""

_IN_USE: Final[WeakValueDictionary[int, CompiledRequirements]] = WeakValueDictionary()
"""By hash, what has been compiled and not forgotten."""


@dataclass(frozen=True, slots=True)
class CompiledTerm:
    """A term that parses and is not empty: all conditions must hold."""

    labels: tuple[NodeLabelRequirement, ...] = ()
    fields: tuple[NodeLabelRequirement, ...] = ()

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a node fulfils the term."""
        return all(label.accepts(labels.get(label.key)) for label in self.labels) and all(
            field.accepts(name if field.key == NAME_FIELD else "") for field in self.fields
        )


@dataclass(frozen=True, slots=True, weakref_slot=True)
class CompiledRequirements:
    """A pod's compiled conditions on nodes, hashed once.

    Attributes:
        node_selector: sorted (key, value) pairs; all must hold.
        terms: None without required affinity; otherwise one must hold (an empty tuple: no node).
        nbytes: about, of all of it.
    """

    node_selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[CompiledTerm, ...] | None = None
    nbytes: int = field(init=False, repr=False, compare=False, default=0)
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        """Look at all of it once: there may be thousands of terms, and some masks of each pod."""
        nbytes = sum([170 + len(key) + len(value) for key, value in self.node_selector])
        for term in self.terms or ():
            nbytes += 100 + sum([each.nbytes for each in (*term.labels, *term.fields)])
        object.__setattr__(self, "nbytes", nbytes)
        object.__setattr__(self, "_hash", hash((self.node_selector, self.terms)))

    @override
    def __hash__(self) -> int:
        return self._hash

    @property
    def matches_all(self) -> bool:
        """Whether every node will do."""
        return not self.node_selector and self.terms is None

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a node with this name and these labels will do."""
        if any(labels.get(key) != value for key, value in self.node_selector):
            return False
        return self.terms is None or any(term.matches(name, labels) for term in self.terms)


def compile_requirements(requirements: NodeRequirements) -> CompiledRequirements:
    """Compile where a pod may run; terms that are empty or do not parse match no node and go."""
    terms = None
    if requirements.terms is not None:
        compiled = (_compile_term(term) for term in requirements.terms)
        terms = tuple(term for term in compiled if term is not None)
    made = CompiledRequirements(tuple(sorted(requirements.node_selector)), terms)
    # Masks are looked up for each constraint: what is the same object need not be compared.
    known = _IN_USE.get(hash(made))
    if known == made:
        return known
    _IN_USE[hash(made)] = made
    return made


def _compile_term(term: NodeTerm) -> CompiledTerm | None:
    checkpoint()
    if not term.match_expressions and not term.match_fields:
        return None
    try:
        labels = tuple(
            compile_requirement(e.key, e.operator, e.values) for e in term.match_expressions
        )
    except SelectorError:
        return None
    if not all(map(_is_field_requirement, term.match_fields)):
        return None
    fields = tuple(Requirement(e.key, e.operator, e.values) for e in term.match_fields)
    return CompiledTerm(labels, fields)


def _is_field_requirement(expression: NodeExpression) -> bool:
    # The key and the value are not checked: an unknown field is one without a value.
    return expression.operator in (IN, NOT_IN) and len(expression.values) == 1


def pinned_node(requirements: NodeRequirements) -> str | None:
    """The one node that a pod may run on by its affinity to a name, as a DaemonSet's; or None."""
    names = {_name_in(term) for term in requirements.terms or ()}
    return names.pop() if len(names) == 1 else None


def _name_in(term: NodeTerm) -> str | None:
    for each in term.match_fields:
        if each.key == NAME_FIELD and each.operator == IN and len(each.values) == 1:
            return each.values[0]
    return None


def named_values(requirements: CompiledRequirements, key: str) -> int | None:
    """The number of values of a key in a pod's node affinity; None when it names none."""
    if any(pair[0] == key for pair in requirements.node_selector):
        return 1
    if requirements.terms is None:
        return None
    values: set[str] = set()
    for term in requirements.terms:
        here = _values_of(term, key)
        if here is None:
            return None
        values |= here
    return len(values)


def _values_of(term: CompiledTerm, key: str) -> set[str] | None:
    named: list[Sequence[str]] = [
        label.values for label in term.labels if label.key == key and label.operator == IN
    ]
    return set.intersection(*map(set, named)) if named else None


NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"

EFFECTS: Final = (NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE)


def taint_text(taint: Taint) -> str:
    """A taint as kubectl writes it: ``dedicated=gpu:NoSchedule``."""
    return f"{taint.key}{f'={taint.value}' * bool(taint.value)}:{taint.effect}"
