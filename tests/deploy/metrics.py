"""What queries of Prometheus name, and which metrics there are."""

from __future__ import annotations

import re

from tests.deploy.files import ROOT

NAME = re.compile(r"\b(?:topospread|scheduler|process|python)_[a-z0-9_]+")
_MATCHER = re.compile(r"([a-z_]+)\s*(?:=|!=|=~|!~)\s*\"")
_BY = re.compile(r"\bby \(([a-z_, ]+)\)")

_ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| (.*?) \|", re.MULTILINE)


def metric_labels() -> dict[str, set[str]]:
    """The labels of each metric by docs/metrics.md, which is written from the code."""
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    found: dict[str, set[str]] = {}
    for name, kind, listed in _ROW.findall(text):
        labels = set(re.findall(r"`(\w+)`", listed))
        if kind == "histogram":
            found |= {f"{name}_bucket": labels | {"le"}, f"{name}_sum": labels}
            found[f"{name}_count"] = labels
        else:
            found[name] = labels
    return found


def labels_used(query: str) -> set[str]:
    """The labels that a query matches or groups by."""
    used = set(_MATCHER.findall(query))
    for listed in _BY.findall(query):
        used |= {label.strip() for label in listed.split(",")}
    return used
