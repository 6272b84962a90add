"""`topospread lint`: what is wrong with the constraints in manifests."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import click

from topospread.cli import documents, manifest_files, output
from topospread.cli.errors import DONE, BadInput, printable
from topospread.cli.manifest_objects import set_namespace, warn_skipped
from topospread.cli.options import (
    ClientOptions,
    output_forms_option,
    pass_options,
    server_options,
)
from topospread.cli.request_options import input_options, warn_of_version
from topospread.cli.state_source import from_option
from topospread.cli.value_readers import LinedDict
from topospread.codec.lint_manifests import (
    IGNORE_ANNOTATION,
    is_patch,
    is_workload,
    workload_from_manifest,
)
from topospread.config.documents import closest
from topospread.kube.versions import parse_version
from topospread.spread.linting.catalog import Severity
from topospread.spread.linting.engine import NOTHING_KNOWN, RULES, Knowledge, lint
from topospread.spread.settings import known_version
from topospread_client import InvalidRequest, ManifestError, pod_from_manifest
from topospread_proto.v1 import common_pb2
from topospread_proto.v1.decision_service_pb2 import ExplainPodRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from topospread.cli.manifest_files import Manifest
    from topospread.cli.options import ApiCaller
    from topospread.kube.objects import Pod
    from topospread.spread.linting.catalog import LintFinding
    from topospread.spread.linting.workloads import LintedWorkload


FORMS: Final = ("table", "json", "yaml", "sarif", "github")

FINDINGS: Final = 1
"""Exit code where there are findings as grave as `--fail-on` says."""

_CODES: Final = {each.code.lower(): each.code for each in RULES.values()}
_SEVERITIES: Final = tuple(each.value for each in Severity)
_NO_WORKLOADS: Final = "no pod and no pod template, or made by another object"
_BUILD: Final = "lint the output of `kustomize build`"
_PATCHES: Final = f"looks like a patch, without a selector or containers: {_BUILD}"
_KUSTOMIZE: Final = "kustomize.config.k8s.io/"
"""The API group of what kustomize reads."""


def _codes(
    context: click.Context, parameter: click.Parameter, values: Sequence[str]
) -> frozenset[str]:
    """Codes of `--ignore`, with commas between or given several times."""
    given = [each.strip() for value in values for each in value.split(",") if each.strip()]
    for each in given:
        if each.lower() not in _CODES:
            raise click.BadParameter(_no_such_code(each), context, parameter)
    return frozenset(_CODES[each.lower()] for each in given)


def _no_such_code(given: str) -> str:
    close = closest(given, _CODES.values())
    return f"there is no code {given!r}." + (f" Did you mean {close!r}?" if close else "")


@click.command("lint", short_help="Look for mistakes in the constraints of manifests.")
@input_options(required=True)
@click.option(
    "--ignore",
    "ignored",
    multiple=True,
    metavar="CODE,…",
    callback=_codes,
    help="Leave findings with these codes out; may be given several times.",
)
@click.option(
    "--severity",
    type=click.Choice(_SEVERITIES),
    default=Severity.INFO.value,
    show_default=True,
    help="Show findings that are at least as grave.",
)
@click.option(
    "--fail-on",
    type=click.Choice([*_SEVERITIES, "never"]),
    default=Severity.WARNING.value,
    show_default=True,
    help="End with exit code 1 where a finding that is shown is at least as grave.",
)
@click.option(
    "--live",
    is_flag=True,
    help="Ask a server about its cluster, too; so do --address, --cluster and --from.",
)
@from_option
@server_options
@output_forms_option(*FORMS)
@pass_options
def command(
    options: ClientOptions,
    paths: Sequence[str],
    recursive: bool,
    namespace: str | None,
    ignored: frozenset[str],
    severity: str,
    fail_on: str,
    live: bool,
) -> int:
    """Look for mistakes in the constraints of workloads, by their manifests.

    Every pod, and everything with a pod template, is looked at: Deployments, StatefulSets, Jobs,
    CronJobs, also Rollouts of Argo and CloneSets. Other objects, and those
    that one of these made, are skipped. docs/lint.md
    has each code: why, an example and how to mend it. An object silences codes with the annotation
    topospread.io/ignore: CODE,…

    With --live a server is asked about its cluster, and --from loads one: what it makes of the pod
    that each workload would make shows keys that no node has, domains without a usable node, and
    rollouts that have no place.

    The exit code is 0 without findings, 1 with one as grave as --fail-on, and 2 where manifests
    cannot be read.
    """
    if options.output not in FORMS:
        raise click.UsageError(f"-o {options.output}: lint prints {', '.join(FORMS)}")
    manifests = manifest_files.read(paths, recursive=recursive, lined=True)
    workloads = _workloads(manifests, namespace)
    shown = Severity(severity)
    items: list[LintItem] = []
    with _cluster(options, live=live) as knowledge_of, output.progress("linting") as progress:
        for done, (manifest, workload) in enumerate(workloads, start=1):
            items += [
                lint_item(manifest, workload.pod, finding)
                for finding in lint(workload, knowledge_of(manifest))
                if finding.code not in ignored and finding.severity.at_least(shown)
            ]
            progress(done, len(workloads))
    if options.output == "sarif":
        output.dump(sarif_log(items), "json")
    else:
        show(items, len(workloads), options.output)
    return _exit_code(items, fail_on)


@contextmanager
def _cluster(options: ClientOptions, *, live: bool) -> Iterator[Callable[[Manifest], Knowledge]]:
    """What is known of the cluster of a server or of `--from`; nothing where neither is named."""
    # Under kubectl there is a source in any case, which is no reason to read a whole cluster.
    named = {"--address", "--cluster", "--from"} & {*options.sources.values()}
    version = parse_version(options.kubernetes_version)
    if options.source is None or (not live and not named):
        warn_of_version(options.kubernetes_version)
    if not live and not named:
        known = NOTHING_KNOWN
        if version is not None:
            known = Knowledge(version=known_version(version))
        yield lambda _: known
        return
    with options.client() as client:
        asked = options.kubernetes_version if options.source is None else ""
        yield lambda manifest: _explained(client, manifest, asked)


def _explained(client: ApiCaller, manifest: Manifest, version: str) -> Knowledge:
    from topospread.service.linting import knowledge_of

    question = ExplainPodRequest(
        pod=common_pb2.PodSource(object=pod_from_manifest(manifest.content)),
        fit=common_pb2.FIT_NODE,
        domain_limit=1,
        skip_suggestions=True,
        consistency=common_pb2.Consistency(fully_consistent=True),
        validation=common_pb2.CONSTRAINT_VALIDATION_IGNORE,
        settings=common_pb2.Settings(kubernetes_version=version) if version else None,
    )
    try:
        return knowledge_of(client.call("ExplainPod", question))
    except InvalidRequest as error:
        raise BadInput(f"{manifest.title}: {error}") from error


def _workloads(
    manifests: Sequence[Manifest], namespace: str | None
) -> list[tuple[Manifest, LintedWorkload]]:
    found: list[tuple[Manifest, LintedWorkload]] = []
    skipped: dict[str, Counter[str]] = {}
    errors: list[str] = []
    for manifest in manifests:
        if not is_workload(manifest.content):
            skipped.setdefault(_why_skipped(manifest), Counter())[manifest.kind] += 1
            continue
        set_namespace(manifest, namespace)
        try:
            workload = workload_from_manifest(manifest.content)
        except ManifestError as error:
            errors.append(f"{manifest.title}: {error}")
            continue
        found.append((manifest, workload))
        for code in sorted(workload.ignored - _CODES.keys()):
            output.warn(f"{manifest.title}: {IGNORE_ANNOTATION}: {_no_such_code(code)}")
    if errors:
        raise BadInput(*errors)
    for reason, kinds in skipped.items():
        warn_skipped(kinds, reason)
    return found


def _why_skipped(manifest: Manifest) -> str:
    if str(manifest.content.get("apiVersion")).startswith(_KUSTOMIZE):
        return _BUILD
    return _PATCHES if is_patch(manifest.content) else _NO_WORKLOADS


def _exit_code(items: Sequence[LintItem], fail_on: str) -> int:
    if fail_on == "never":
        return DONE
    least = Severity(fail_on)
    return FINDINGS if any(each.severity.at_least(least) for each in items) else DONE


_SOURCE: Final = re.compile(r"^(.*):(\d+)(?: items\[\d+\])*$", re.DOTALL)
_STYLES: Final = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
_COMMANDS: Final = {
    Severity.ERROR: "error",
    Severity.WARNING: "warning",
    Severity.INFO: "notice",
}
"""GitHub's names for annotations."""

_CONSTRAINTS: Final = "topologySpreadConstraints"

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
DOCUMENTATION: Final = "https://github.com/topospread/topospread/blob/main/docs/lint.md"

_LEVELS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


@dataclass(frozen=True, slots=True)
class LintItem:
    """One finding, where it stands and what it is about.

    `line` is that of the constraint in YAML, otherwise of the object; `code` is as `--ignore` takes
    it; `constraint_index` is None for the workload as a whole; `mend`, what to do about it.
    """

    file: str
    line: int
    kind: str
    namespace: str
    name: str
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
        code=finding.code,
        severity=finding.severity,
        constraint_index=None if index < 0 else index,
        topology_key=None if spec is None else spec.topology_key,
        text=finding.text,
        mend=finding.rule.mend,
    )


def _constraint_line(content: Mapping[str, object], index: int) -> int | None:
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
                f"{printable(each.file)}:{each.line}: {severity} {each.code}: {each.message}"
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
