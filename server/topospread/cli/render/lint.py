"""Rendering of the findings of `lint`, for people, programs and GitHub."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from topospread.cli import documents, output
from topospread.cli.errors import printable
from topospread.cli.yaml_reader import LinedDict
from topospread.spread.linting.catalog import Severity
from topospread_client import FindingCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topospread.cli.manifest_files import Manifest
    from topospread.kube.objects import Pod
    from topospread.spread.linting.catalog import LintFinding

FORMS: Final = ("table", "json", "yaml", "sarif", "github")

_SOURCE: Final = re.compile(r"^(.*):(\d+)(?: items\[\d+\])*$", re.DOTALL)
_STYLES: Final = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
_COMMANDS: Final = {
    Severity.ERROR: "error",
    Severity.WARNING: "warning",
    Severity.INFO: "notice",
}
"""GitHub's names for annotations."""

_CONSTRAINTS: Final = "topologySpreadConstraints"


@dataclass(frozen=True, slots=True)
class LintItem:
    """One finding, where it stands and what it is about.

    Attributes:
        file: as it was given; "standard input" for that.
        line: of the constraint in YAML, otherwise of the object.
        namespace: "" where the manifest names none.
        name: of the workload.
        constraint_index: position in the pod's list; None for the workload as a whole.
        topology_key: of the constraint.
        text: what is wrong.
        mend: what to do about it.
    """

    file: str
    line: int
    kind: str
    namespace: str
    name: str
    code: FindingCode
    severity: Severity
    constraint_index: int | None
    topology_key: str | None
    text: str
    mend: str

    @property
    def message(self) -> str:
        """The finding with its object, in one line."""
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        about = f"{self.kind} {name}"
        if self.constraint_index is not None:
            about += f": constraint {self.constraint_index}"
            about += f" ({self.topology_key})" if self.topology_key else ""
        return printable(f"{about}: {self.text}")


def lint_item(manifest: Manifest, pod: Pod, finding: LintFinding) -> LintItem:
    """A finding with the place of what it is about."""
    at = _SOURCE.match(manifest.source)
    file, line = (at[1], int(at[2])) if at else (manifest.source, 1)
    if isinstance(manifest.content, LinedDict):
        line = manifest.content.line
    index = finding.constraint
    spec = pod.constraints[index] if 0 <= index < len(pod.constraints) else None
    metadata = manifest.content.get("metadata") or {}
    return LintItem(
        file=file,
        line=line if index < 0 else _constraint_line(manifest.content, index) or line,
        kind=manifest.kind,
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata.get("name") or metadata.get("generateName") or ""),
        code=FindingCode[finding.rule.name],
        severity=finding.severity,
        constraint_index=None if index < 0 else index,
        topology_key=None if spec is None else spec.topology_key,
        text=finding.text,
        mend=finding.rule.mend,
    )


def _constraint_line(content: Mapping[str, object], index: int) -> int | None:
    """The line of a constraint; None where the file does not tell."""
    at: object = content
    if content.get("kind") == "CronJob":
        at = _member(_member(at, "spec"), "jobTemplate")
    if content.get("kind") != "Pod":
        at = _member(_member(at, "spec"), "template")
    listed = _member(_member(at, "spec"), _CONSTRAINTS)
    if not isinstance(listed, list) or index >= len(listed):
        return None
    constraint = listed[index]
    return constraint.line if isinstance(constraint, LinedDict) else None


def _member(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, dict) else None


def show(items: Sequence[LintItem], workloads: int, form: str) -> None:
    """Print findings in the form of `--output`, but for SARIF."""
    if form in ("json", "yaml"):
        documents.show("LintFindingList", form, items=items)
    elif form == "github":
        for each in items:
            click.echo(_annotation(each))
    else:
        for each in items:
            severity = click.style(each.severity.value, fg=_STYLES[each.severity])
            click.echo(
                f"{printable(each.file)}:{each.line}: {severity} {each.code.label}: {each.message}"
            )
        output.warn(_summary(items, workloads))


def _summary(items: Sequence[LintItem], workloads: int) -> str:
    counts = Counter(each.severity for each in items)
    found = ", ".join(
        f"{counts[each]} {each.value}{'s' * (counts[each] != 1)}"
        for each in Severity
        if counts[each]
    )
    return f"{found or 'no findings'} in {workloads} workload{'s' * (workloads != 1)}"


def _annotation(item: LintItem) -> str:
    """A workflow command of GitHub, which shows the finding beside the line in a pull request."""
    properties = {"file": item.file, "line": str(item.line), "title": item.code.label}
    given = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{_COMMANDS[item.severity]} {given}::{_data(item.message)}"


def _data(text: str) -> str:
    return printable(text).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
