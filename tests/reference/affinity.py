"""Which nodes a pod's nodeSelector and required node affinity accept.

Source: KEP-895, "If NodeAffinity or NodeSelector is defined, spreading is applied to nodes that
pass those filters"; the nodeaffinity package of k8s.io/component-helpers; facts F20, F21.
"""

from tests.reference.objects import Json, labels_of, name_of, spec_of
from tests.reference.selectors import SelectorError, exact, parse_requirement


def accepts(pod: Json, node: Json) -> bool:
    """Whether the node passes the pod's nodeSelector and its required node affinity."""
    spec = spec_of(pod)
    if not exact(spec.get("nodeSelector") or {}).matches(labels_of(node)):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    # Terms are ORed, so that no term at all accepts nothing (F20).
    return any(term_accepts(term, node) for term in required.get("nodeSelectorTerms") or [])


def term_accepts(term: Json, node: Json) -> bool:
    """Whether one term accepts the node.

    An empty term accepts nothing. A term with any part that does not parse is passed over, however
    its other parts would answer; the remaining terms still count (F20).
    """
    expressions = term.get("matchExpressions") or []
    fields = term.get("matchFields") or []
    if not expressions and not fields:
        return False
    try:
        requirements = [
            parse_requirement(e.get("key") or "", e.get("operator") or "", e.get("values") or [])
            for e in expressions
        ]
        wanted_fields = [parse_field(field) for field in fields]
    except SelectorError:
        return False
    labels = labels_of(node)
    return all(r.matches(labels) for r in requirements) and all(
        (field_of(node, key) == value) == wanted for key, value, wanted in wanted_fields
    )


def parse_field(field: Json) -> tuple[str, str, bool]:
    """A matchFields entry as (key, value, whether the value is wanted).

    Raises:
        SelectorError: not exactly one value, or an operator other than In and NotIn (F21).
    """
    operator, values = field.get("operator"), field.get("values") or []
    if operator not in ("In", "NotIn") or len(values) != 1:
        raise SelectorError("matchFields takes In or NotIn with exactly one value")
    return field.get("key") or "", values[0], operator == "In"


def field_of(node: Json, key: str) -> str:
    """A field of the node; only metadata.name exists, any other is ""."""
    return name_of(node) if key == "metadata.name" else ""
