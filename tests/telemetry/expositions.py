"""Reads what /metrics shows."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families


def samples(exposition: bytes) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample by name and labels."""
    found = {}
    for family in text_string_to_metric_families(exposition.decode()):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, f"{key} is there twice"
            found[key] = sample.value
    return found


def value(exposition: bytes, name: str, **labels: str) -> float | None:
    """One sample; None when it is not there."""
    return samples(exposition).get((name, frozenset(labels.items())))


def names(exposition: bytes) -> set[str]:
    """The families' names with their types, as `# TYPE` says."""
    lines = exposition.decode().splitlines()
    return {line.removeprefix("# TYPE ") for line in lines if line.startswith("# TYPE ")}
