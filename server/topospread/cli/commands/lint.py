"""`topospread lint`: what is wrong with the constraints in manifests."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import click

from topospread.cli import manifest_files, output
from topospread.cli.errors import DONE, BadInput
from topospread.cli.manifest_documents import Manifest
from topospread.cli.manifest_objects import set_namespace, warn_skipped
from topospread.cli.options import (
    ClientOptions,
    output_forms_option,
    pass_options,
    server_options,
)
from topospread.cli.render.lint import TextPart, lint_item, sarif_log, show
from topospread.cli.request_options import input_options, warn_of_version
from topospread.cli.state_source import from_option
from topospread.cli.template_references import with_templates
from topospread.cli.text_manifests import texts_with_constraints
from topospread.cli.yaml_values import given_twice
from topospread.codec.lint_manifests import (
    IGNORE_ANNOTATION,
    MOST_CONSTRAINTS,
    has_controller,
    is_patch,
)
from topospread.codec.lint_parts import lint_parts, part_number, unread_part
from topospread.config.documents import closest
from topospread.errors import FieldViolation
from topospread.kube.versions import parse_version
from topospread.spread.linting.catalog import Severity
from topospread.spread.linting.engine import NOTHING_KNOWN, RULES, Knowledge, lint
from topospread.spread.settings import known_version
from topospread_client import InvalidRequest, template_reference
from topospread_proto.v1 import common_pb2
from topospread_proto.v1.decision_service_pb2 import ExplainPodRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from topospread.cli.options import ApiCaller
    from topospread.cli.render.lint import LintItem
    from topospread.codec.lint_parts import LintedPart


FORMS: Final = ("table", "json", "yaml", "sarif", "github")

FINDINGS: Final = 1
"""Exit code where there are findings as grave as `--fail-on` says."""

_CODES: Final = {each.code.lower(): each.code for each in RULES.values()}
_SEVERITIES: Final = tuple(each.value for each in Severity)
_NO_WORKLOADS: Final = "no pod and no pod template"
_MADE: Final = "made by another object"
_BUILD: Final = "lint the output of `kustomize build`"
_PATCHES: Final = f"looks like a patch, without a selector or containers: {_BUILD}"
_TWICE: Final = "is given twice, and the last is taken"
_IN_CONSTRAINT: Final = re.compile(r"\[\d+\]\.\w+")
_DASH: Final = ": if another constraint begins there, write `- ` before it"
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

    Every pod is looked at, and everything with a pod template, of whatever kind. Of other objects,
    of patches and of values of charts, also in texts, the constraints alone are. Pods and workloads
    that another object made are skipped. docs/lint.md
    has each code: why, an example and how to mend it. An object silences codes with the annotation
    topospread.io/ignore: CODE,…

    With --live a server is asked about its cluster, and --from loads one: what it makes of the pod
    that each workload would make shows keys that no node has, domains without a usable node, and
    rollouts that have no place.

    The exit code is 0 without findings, 1 with one as grave as --fail-on, and 2 where files cannot
    be read; the others are linted.
    """
    if options.output not in FORMS:
        raise click.UsageError(f"-o {options.output}: lint prints {', '.join(FORMS)}")
    broken: list[str] = []
    manifests = manifest_files.read(
        paths, recursive=recursive, lined=True, kindless=_has_parts, broken=broken
    )
    parts = _parts(manifests, namespace, broken)
    if broken and not parts:
        raise BadInput(*broken)
    shown = Severity(severity)
    items: list[LintItem] = []
    with _cluster(options, live=live) as knowledge_of, output.progress("linting") as progress:
        for done, each in enumerate(parts, start=1):
            items += [
                lint_item(each.manifest, each.part.workload, finding, each.text)
                for finding in lint(each.part.workload, knowledge_of(each))
                if finding.code not in ignored and finding.severity.at_least(shown)
            ]
            progress(done, len(parts))
    if options.output == "sarif":
        output.dump(sarif_log(items), "json")
    else:
        lists = sum(not each.part.workload.has_template for each in parts)
        show(items, len(parts) - lists, lists, options.output)
    if broken:
        raise BadInput(*broken)
    return _exit_code(items, fail_on)


@dataclass(frozen=True, slots=True)
class _ManifestPart:
    """A part of a manifest that is linted.

    Attributes:
        manifest: that has the part.
        text: of the manifest that has it; None where the manifest itself does.
    """

    manifest: Manifest
    part: LintedPart
    text: TextPart | None = None


@contextmanager
def _cluster(
    options: ClientOptions, *, live: bool
) -> Iterator[Callable[[_ManifestPart], Knowledge]]:
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
        yield lambda each: _explained(client, each, asked)


def _explained(client: ApiCaller, asked: _ManifestPart, version: str) -> Knowledge:
    from topospread.codec.reservations import selector_message
    from topospread.codec.rollouts import rollout_message
    from topospread.service.linting import knowledge_of, replicas_of, rollout_of

    pod = asked.part.pod()
    if pod is None:
        return NOTHING_KNOWN
    workload = asked.part.workload
    replicas, rollout = replicas_of(workload), rollout_of(workload)
    question = ExplainPodRequest(
        pod=common_pb2.PodSource(object=pod),
        fit=common_pb2.FIT_NODE,
        domain_limit=1,
        skip_suggestions=True,
        replica_selector=None if replicas is None else selector_message(replicas),
        rolling_update=None if rollout is None else rollout_message(rollout),
        replicas=workload.replicas,
        consistency=common_pb2.Consistency(fully_consistent=True),
        validation=common_pb2.CONSTRAINT_VALIDATION_IGNORE,
        settings=common_pb2.Settings(kubernetes_version=version) if version else None,
    )
    try:
        return knowledge_of(client.call("ExplainPod", question), rollout)
    except InvalidRequest as error:
        output.warn(f"{asked.manifest.title}: linted without the cluster: {error}")
        return NOTHING_KNOWN


def _has_parts(content: Mapping[str, Any]) -> bool:
    """Whether a document that is no object has constraints, as values of a chart may."""
    texts = texts_with_constraints(Manifest({**content}, ""))
    return bool(lint_parts(content)) or any(texts)


def _parts(
    manifests: Sequence[Manifest], namespace: str | None, broken: list[str]
) -> list[_ManifestPart]:
    """The parts of manifests; `broken` gets what is wrong with those that have none."""
    found: list[_ManifestPart] = []
    skipped: dict[str, Counter[str]] = {}
    for manifest in with_templates(manifests):
        set_namespace(manifest, namespace)
        texts = [*texts_with_constraints(manifest)]
        # A text in the place of a list is a part of its own.
        read = {(each.outer, each.path) for each in texts}
        linted = _linted(manifest.content)
        own = [
            _ManifestPart(manifest, part)
            for part in linted
            if ("", part.workload.constraints_path) not in read
        ]
        for text in texts:
            own += [
                _ManifestPart(manifest, part, TextPart(text, document))
                for document in text.documents
                for part in _linted(document)
                if text.outer or (text.path, part.workload.constraints_path) not in read
            ]
            if text.unread:
                unread = unread_part(manifest.content, text.outer or text.path, text.unread)
                own.append(_ManifestPart(manifest, unread))
        if not linted and (second := _second_key(manifest)):
            broken.append(second)
        elif manifest.kind and (not own or is_patch(manifest.content)):
            skipped.setdefault(_why_skipped(manifest), Counter())[manifest.kind] += 1
        found += own
        codes = {code for each in own for code in each.part.workload.ignored}
        for code in sorted(codes - _CODES.keys()):
            output.warn(f"{manifest.title}: {IGNORE_ANNOTATION}: {_no_such_code(code)}")
    for reason, kinds in skipped.items():
        warn_skipped(kinds, reason)
    return found


def _second_key(manifest: Manifest) -> str:
    """What is wrong with an object that has a key twice; empty where it has none."""
    twice = islice(given_twice(manifest.content), MOST_CONSTRAINTS)
    path, line = min(twice, key=itemgetter(1), default=("", 0))
    file = manifest.source.rpartition(":")[0]
    return f"{file}:{line}: not YAML: the key {path!r} is given twice" if line else ""


def _linted(content: Mapping[str, Any]) -> list[LintedPart]:
    """The parts of an object, with its keys that are given twice."""
    parts = lint_parts(content)
    if not parts:
        return []
    twice = islice(given_twice(content), MOST_CONSTRAINTS)
    for path, _ in sorted(twice, key=itemgetter(1)):
        at = part_number(parts, path)
        workload = parts[at].workload
        in_constraint = _IN_CONSTRAINT.fullmatch(path.removeprefix(workload.constraints_path))
        wrong = FieldViolation(path, _TWICE + (_DASH if in_constraint else ""))
        workload = replace(workload, malformed=(*workload.malformed, wrong))
        parts[at] = replace(parts[at], workload=workload)
    return parts


def _why_skipped(manifest: Manifest) -> str:
    if str(manifest.content.get("apiVersion")).startswith(_KUSTOMIZE):
        return _BUILD
    if has_controller(manifest.content):
        return _MADE
    if reference := template_reference(manifest.content):
        return f"its template is that of {reference}"
    return _PATCHES if is_patch(manifest.content) else _NO_WORKLOADS


def _exit_code(items: Sequence[LintItem], fail_on: str) -> int:
    if fail_on == "never":
        return DONE
    least = Severity(fail_on)
    return FINDINGS if any(each.severity.at_least(least) for each in items) else DONE
