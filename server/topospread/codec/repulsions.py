"""What keeps the pods of one template apart, as its manifest says."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from topospread.codec.manifest_parts import part_of
from topospread.codec.pod_parts import host_ports
from topospread.codec.pods import selector_from_proto
from topospread.kube.demands import ALL_ADDRESSES
from topospread.kube.selectors import SelectorError, compile_selector
from topospread.spread.linting.workloads import Repulsion
from topospread_client import selector_from_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread_proto.kubernetes.v1.kubernetes_pb2 import PodSpec

MOST_TERMS: Final = 100
"""Terms of anti-affinity that are looked at."""

MOST_PORTS: Final = 5
"""Host ports that a text has."""


def repulsions(
    spec: Mapping[str, Any],
    converted: PodSpec,
    labels: Mapping[str, str],
    namespace: str,
    hash_label: str,
) -> tuple[Repulsion, ...]:
    """What keeps pods of a template apart, each key once.

    Args:
        spec: of the pods, as its author wrote it.
        converted: the same.
        labels: of the pods.
        namespace: of the pods.
        hash_label: that tells revisions apart; empty where there is none.
    """
    found: dict[str, Repulsion] = {}
    ports = host_ports(converted)
    if ports:
        shown = tuple(
            f"{'' if each.ip == ALL_ADDRESSES else f'{each.ip}:'}{each.port}/{each.protocol}"
            for each in islice(ports, MOST_PORTS)
        )
        found[""] = Repulsion("", shown)
    for key, is_scoped in _terms(spec, labels, namespace, hash_label):
        # One that knows no revisions is the stricter.
        if key not in found or found[key].is_scoped:
            found[key] = Repulsion(key, is_scoped=is_scoped)
    return tuple(found.values())


def _terms(
    spec: Mapping[str, Any], labels: Mapping[str, str], namespace: str, hash_label: str
) -> Iterator[tuple[str, bool]]:
    """Keys of required anti-affinity to other pods of the template, and whether of a revision."""
    anti = part_of(part_of(spec, "affinity"), "podAntiAffinity")
    terms = anti.get("requiredDuringSchedulingIgnoredDuringExecution")
    for term in map(part_of, terms[:MOST_TERMS] if isinstance(terms, list) else ()):
        key, scopes = term.get("topologyKey"), term.get("matchLabelKeys")
        if not isinstance(key, str) or not key or not _covers(term, namespace):
            continue
        if term.get("mismatchLabelKeys"):
            continue
        selector = selector_from_manifest({"spec": {"selector": term.get("labelSelector")}})
        try:
            given = None if selector is None else selector_from_proto(selector)
            if compile_selector(given).matches(labels):
                yield key, isinstance(scopes, list) and hash_label in scopes
        except SelectorError:
            continue


def _covers(term: Mapping[str, Any], namespace: str) -> bool:
    """Whether a term is about pods of their own namespace, as far as it is known."""
    names, chosen = term.get("namespaces"), term.get("namespaceSelector")
    if isinstance(names, list) and namespace in names:
        return True
    if isinstance(chosen, Mapping):
        return not chosen.get("matchLabels") and not chosen.get("matchExpressions")
    return not names
