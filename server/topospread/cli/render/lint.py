"""What `lint` prints: findings with their places, for people and programs."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import click

from topospread.cli import documents, output
from topospread.cli.errors import printable
from topospread.cli.manifest_documents import Manifest
from topospread.cli.yaml_values import LinedDict
from topospread.codec.lint_readings import known_steps
from topospread.spread.linting.catalog import Severity
from topospread.spread.linting.engine import RULES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topospread.cli.text_manifests import ManifestText
    from topospread.spread.linting.catalog import LintFinding
    from topospread.spread.linting.workloads import LintedWorkload

_SOURCE: Final = re.compile(r"^(.*):(\d+)(?: items\[\d+\])*$", re.DOTALL)
_STYLES: Final = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
_COMMANDS: Final = {
    Severity.ERROR: "error",
    Severity.WARNING: "warning",
    Severity.INFO: "notice",
}
"""GitHub's names for annotations."""

_USUAL_PATHS: Final = frozenset({"", "spec.template", "spec.jobTemplate.spec.template", "template"})

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
DOCUMENTATION: Final = "https://github.com/topospread/topospread/blob/main/docs/lint.md"

_LEVELS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


@dataclass(frozen=True, slots=True)
class LintItem:
    """One finding, where it stands and what it is about.

    `line` is that of the field or of the constraint in YAML, otherwise of the object; `path`, that
    of the pod template or of what has the constraints, None where it is that of most kinds; `code`
    is as `--ignore` takes it; `constraint_index` is None for the workload as a whole; `mend`, what
    to do about it.
    """

    file: str
    line: int
    kind: str
    namespace: str
    name: str
    path: str | None
    code: str
    severity: Severity
    constraint_index: int | None
    topology_key: str | None
    text: str
    mend: str

    @property
    def message(self) -> str:
        """The finding with its object, in one line."""
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        about = f"{self.kind} {name}".strip()
        about += f": {self.path}" if self.path else ""
        if self.constraint_index is not None:
            about += f": constraint {self.constraint_index}"
            about += f" ({self.topology_key})" if self.topology_key else ""
        return printable(f"{about}: {self.text}".removeprefix(": "))


@dataclass(frozen=True, slots=True)
class TextPart:
    """A document in a text of an object."""

    text: ManifestText
    content: Mapping[str, Any]


def lint_item(
    manifest: Manifest, workload: LintedWorkload, finding: LintFinding, within: TextPart | None
) -> LintItem:
    """A finding with the place of what it is about.

    Args:
        manifest: of the input.
        workload: that was linted.
        finding: on it.
        within: the document in a text of the manifest that has the workload; None where there is
            no such text.
    """
    at = _SOURCE.match(manifest.source)
    file, line = (at[1], int(at[2])) if at else (manifest.source, 1)
    if isinstance(manifest.content, LinedDict):
        line = manifest.content.line
    index, constraints = finding.constraint, workload.pod.constraints
    spec = constraints[index] if 0 <= index < len(constraints) else None
    path = finding.field
    if not path:
        path = f"{workload.constraints_path}[{index}]" if index >= 0 else _shown_path(workload)
    if within is None:
        line = line_at(manifest.content, path) or line
        shown = _shown_path(workload)
    else:
        line = within.text.line_of(line_at(within.content, path) or 1) or line
        label = Manifest(dict(within.content), "").label if within.content.get("kind") else ""
        shown = ": ".join(filter(None, (within.text.where, label, _shown_path(workload))))
    metadata = manifest.content.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    return LintItem(
        file=file,
        line=line,
        kind=manifest.kind,
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata.get("name") or metadata.get("generateName") or ""),
        path=shown or None,
        code=finding.code,
        severity=finding.severity,
        constraint_index=None if index < 0 else index,
        topology_key=None if spec is None else spec.topology_key,
        text=finding.text,
        mend=finding.mend,
    )


def _shown_path(workload: LintedWorkload) -> str:
    """Where constraints stand in the object, unless that is where most objects have them."""
    return "" if workload.path in _USUAL_PATHS else workload.path


def line_at(content: object, path: str) -> int | None:
    """Line of a path of an object, or of as much of it as there is; None where no line is known."""
    line = content.line if isinstance(content, LinedDict) and path else None
    at: Any = content
    for step in known_steps(content, path)[0]:
        of_key = at.lines.get(step) if isinstance(at, LinedDict) else None
        at = at[step]
        line = of_key or (at.line if isinstance(at, LinedDict) else line)
    return line


def show(items: Sequence[LintItem], workloads: int, lists: int, form: str) -> None:
    """Print findings in the form of `--output`, but for SARIF.

    Args:
        items: what was found.
        workloads: that were linted.
        lists: of constraints outside of workloads that were.
        form: of the output.
    """
    if form in ("json", "yaml"):
        documents.show("LintFindingList", form, items=items)
    elif form == "github":
        for each in items:
            click.echo(_annotation(each))
    else:
        for each in items:
            severity = click.style(each.severity.value, fg=_STYLES[each.severity])
            click.echo(
                f"{printable(each.file)}:{each.line}: {severity} {each.code}: {each.message}"
            )
        output.warn(_summary(items, workloads, lists))


def _summary(items: Sequence[LintItem], workloads: int, lists: int) -> str:
    counts = Counter(each.severity for each in items)
    found = ", ".join(
        f"{counts[each]} {each.value}{'s' * (counts[each] != 1)}"
        for each in Severity
        if counts[each]
    )
    linted = [
        f"{count} {name}{'s' * (count != 1)}{more}"
        for count, name, more in (
            (workloads, "workload", ""),
            (lists, "list", " of constraints elsewhere" if workloads else " of constraints"),
        )
        if count or (name == "workload" and not lists)
    ]
    return f"{found or 'no findings'} in {' and '.join(linted)}"


def _annotation(item: LintItem) -> str:
    """A workflow command of GitHub, which shows the finding beside the line in a pull request."""
    properties = {"file": item.file, "line": str(item.line), "title": item.code}
    given = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{_COMMANDS[item.severity]} {given}::{_data(item.message)}"


def _data(text: str) -> str:
    return printable(text).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


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
                "results": [_result(each, positions[each.code]) for each in items],
            }
        ],
    }


def _result(item: LintItem, position: int) -> dict[str, Any]:
    return {
        "ruleId": item.code,
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
