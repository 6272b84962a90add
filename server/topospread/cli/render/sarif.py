"""Findings as SARIF 2.1.0, which code scanning reads."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from topospread.cli.errors import printable
from topospread.spread.linting.catalog import Severity
from topospread.spread.linting.engine import RULES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.cli.render.lint import LintItem

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
DOCUMENTATION: Final = "https://github.com/topospread/topospread/blob/main/docs/lint.md"

_LEVELS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def sarif_log(items: Sequence[LintItem]) -> dict[str, Any]:
    """A log of one run, with every rule that lint has."""
    rules = [
        {
            "id": rule.code,
            "shortDescription": {"text": rule.summary},
            "help": {"text": rule.mend},
            "helpUri": f"{DOCUMENTATION}#{rule.code.lower()}",
            "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        }
        for rule in RULES.values()
    ]
    positions = {rule["id"]: position for position, rule in enumerate(rules)}
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "topospread",
                        "version": version("topospread"),
                        "informationUri": DOCUMENTATION,
                        "rules": rules,
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [_result(each, positions[each.code.label]) for each in items],
            }
        ],
    }


def _result(item: LintItem, position: int) -> dict[str, Any]:
    return {
        "ruleId": item.code.label,
        "ruleIndex": position,
        "level": _LEVELS[item.severity],
        "message": {"text": item.message},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": quote(printable(item.file))},
                    "region": {"startLine": item.line},
                }
            }
        ],
    }
