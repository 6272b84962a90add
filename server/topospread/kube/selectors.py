"""Label selectors, compiled: what they match, and which of them do not parse.

Sources: apimachinery's ``labels`` package and ``metav1.LabelSelectorAsSelector``; upstream facts
1 to 5.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from topospread.kube.label_syntax import label_key_errors, label_value_errors, parse_int64
from topospread.kube.violations import invalid, not_supported, quoted, violations_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from topospread.errors import FieldViolation
    from topospread.kube.objects import LabelSelector

IN: Final = "In"
NOT_IN: Final = "NotIn"
EXISTS: Final = "Exists"
DOES_NOT_EXIST: Final = "DoesNotExist"
GREATER: Final = "Gt"
LESS: Final = "Lt"

FEW: Final = 8
"""Values of a requirement, and requirements of a selector, that are looked at one by one."""

SELECTOR_OPERATORS: Final = (IN, NOT_IN, EXISTS, DOES_NOT_EXIST)
NODE_OPERATORS: Final = (*SELECTOR_OPERATORS, GREATER, LESS)


class SelectorError(ValueError):
    """A selector that does not parse; the text is upstream's."""


@dataclass(frozen=True, slots=True, order=True)
class Requirement:
    """A condition on one label.

    Attributes:
        operator: In, NotIn, Exists, DoesNotExist; for nodes also Gt and Lt.
        values: sorted, each once.
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()
    _looked_up: Collection[str] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        """Order the values, so that equal sets of values are equal requirements."""
        if len(self.values) > 1:
            object.__setattr__(self, "values", tuple(sorted(set(self.values))))
        # A set pays where values are many.
        many = len(self.values) > FEW
        object.__setattr__(self, "_looked_up", frozenset(self.values) if many else self.values)

    @property
    def nbytes(self) -> int:
        """Bytes, about, of the condition with its values."""
        return 200 + len(self.key) + sum([110 + len(value) for value in self.values])

    def accepts(self, value: str | None) -> bool:
        """Whether a label with this value fulfils the condition; None: there is no such label."""
        match self.operator:
            case "In":
                return value in self._looked_up
            case "NotIn":
                return value not in self._looked_up
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        return value is not None and self._compares(value)

    def _compares(self, value: str) -> bool:
        number, bound = parse_int64(value), parse_int64(self.values[0])
        if number is None or bound is None:
            return False
        return number > bound if self.operator == GREATER else number < bound


@dataclass(frozen=True, slots=True)
class Selector:
    """Conditions that must all hold; equal ones compare equal whatever order they were written in.

    Attributes:
        requirements: sorted, each once.
        nothing: the nil selector, which matches no labels at all; it has no requirements.
    """

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False
    _by_key: Mapping[str, Sequence[Requirement]] | None = field(
        init=False, repr=False, compare=False, default=None
    )
    _wanted: frozenset[str] = field(init=False, repr=False, compare=False, default=frozenset())

    def __post_init__(self) -> None:
        if len(self.requirements) > 1:
            object.__setattr__(self, "requirements", tuple(sorted(set(self.requirements))))
        if len(self.requirements) > FEW:
            by_key: dict[str, list[Requirement]] = {}
            for each in self.requirements:
                by_key.setdefault(each.key, []).append(each)
            wanted = (each.key for each in self.requirements if not each.accepts(None))
            merged = {key: _merged(key, found) for key, found in by_key.items()}
            object.__setattr__(self, "_by_key", merged)
            object.__setattr__(self, "_wanted", frozenset(wanted))

    @property
    def nbytes(self) -> int:
        """Bytes, about, of all conditions."""
        merged = [each for found in (self._by_key or {}).values() for each in found]
        every = {id(each): each for each in (*self.requirements, *merged)}
        return 150 + sum([each.nbytes for each in every.values()])

    @property
    def empty(self) -> bool:
        """Go's ``Empty()``: restricts nothing. The nil selector is not empty."""
        return not self.requirements and not self.nothing

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels fulfil all conditions."""
        if self.nothing:
            return False
        if self._by_key is not None:
            # Those that name a label that is there, few of each: many cost no more than few.
            return self._wanted <= labels.keys() and all(
                each.accepts(labels[key]) for key in labels for each in self._by_key.get(key, ())
            )
        for requirement in self.requirements:
            if not requirement.accepts(labels.get(requirement.key)):
                return False
        return True

    def merged(self, pairs: Iterable[tuple[str, str]]) -> Selector:
        """The selector with labels that must be equal, too; one of nothing stays so.

        Upstream's ``mergeLabelSetWithSelector``: the pairs are not validated.
        """
        return self.and_requirements(selector_from_pairs(pairs))

    def and_requirements(self, other: Selector) -> Selector:
        """The selector with the requirements of another, which has none if it is nothing."""
        if self.nothing or not other.requirements:
            return self
        return Selector((*self.requirements, *other.requirements))


def _merged(key: str, requirements: Sequence[Requirement]) -> Sequence[Requirement]:
    """The conditions on one label, those with values brought together."""
    if len(requirements) == 1:
        return requirements
    values: dict[str, list[tuple[str, ...]]] = {IN: [], NOT_IN: []}
    found = []
    for each in requirements:
        if each.operator in values:
            values[each.operator].append(each.values)
        else:
            found.append(each)
    if values[IN]:
        common = set(values[IN][0]).intersection(*values[IN][1:])
        found.append(Requirement(key, IN, tuple(common)))
    if values[NOT_IN]:
        found.append(Requirement(key, NOT_IN, tuple(set().union(*values[NOT_IN]))))
    return found


EVERYTHING: Final = Selector()
NOTHING: Final = Selector(nothing=True)


def compile_selector(selector: LabelSelector | None) -> Selector:
    """``LabelSelectorAsSelector``: None becomes :data:`NOTHING`, an empty one :data:`EVERYTHING`.

    Raises:
        SelectorError: an unknown operator, In or NotIn without values, Exists or DoesNotExist with
            values, or a malformed key or value. matchLabels come first, in the order of their keys.
    """
    if selector is None:
        return NOTHING
    requirements = [
        compile_requirement(key, IN, (value,)) for key, value in sorted(selector.match_labels)
    ]
    for expression in selector.match_expressions:
        if expression.operator not in SELECTOR_OPERATORS:
            raise SelectorError(
                f"{quoted(expression.operator)} is not a valid label selector operator"
            )
        requirements.append(
            compile_requirement(expression.key, expression.operator, expression.values)
        )
    return Selector(tuple(requirements))


def selector_from_pairs(pairs: Iterable[tuple[str, str]]) -> Selector:
    """``labels.SelectorFromSet``: all labels must be equal; nothing is validated, none is all."""
    return Selector(tuple(Requirement(key, IN, (value,)) for key, value in pairs))


def selector_text(selector: Selector) -> str:
    """A selector as kubectl writes it: ``app=web,tier in (a,b)``; ``<nil>`` and ``<empty>``."""
    if selector.nothing:
        return "<nil>"
    return ",".join(map(_requirement_text, selector.requirements)) or "<empty>"


def _requirement_text(requirement: Requirement) -> str:
    key, values = requirement.key, requirement.values
    match requirement.operator:
        case "Exists":
            return key
        case "DoesNotExist":
            return f"!{key}"
        case "In" if len(values) == 1:
            return f"{key}={values[0]}"
        case "NotIn" if len(values) == 1:
            return f"{key}!={values[0]}"
    return f"{key} {requirement.operator.lower()} ({','.join(values)})"


def compile_requirement(key: str, operator: str, values: Sequence[str]) -> Requirement:
    """``labels.NewRequirement``, the operators being those of nodes."""
    violations = (
        [invalid("key", key, "; ".join(errors))] if (errors := label_key_errors(key)) else []
    )
    violations += _operator_violations(operator, values)
    violations += [
        invalid(f"values[{index}][{key}]", value, "; ".join(errors))
        for index, value in enumerate(values)
        if (errors := label_value_errors(value))
    ]
    if violations:
        raise SelectorError(violations_text(violations))
    return Requirement(key, operator, tuple(values))


def _operator_violations(operator: str, values: Sequence[str]) -> list[FieldViolation]:
    # Go prints a list without elements as null here.
    shown = list(values) or None
    if operator in (IN, NOT_IN):
        text = "for 'in', 'notin' operators, values set can't be empty"
        return [] if values else [invalid("values", shown, text)]
    if operator in (EXISTS, DOES_NOT_EXIST):
        text = "values set must be empty for exists and does not exist"
        return [invalid("values", shown, text)] if values else []
    if operator not in NODE_OPERATORS:
        return [not_supported("operator", operator, NODE_OPERATORS)]
    violations = []
    if len(values) != 1:
        text = "for 'Gt', 'Lt' operators, exactly one value is required"
        violations.append(invalid("values", shown, text))
    violations += [
        invalid(f"values[{index}]", value, "for 'Gt', 'Lt' operators, the value must be an integer")
        for index, value in enumerate(values)
        if parse_int64(value) is None
    ]
    return violations
