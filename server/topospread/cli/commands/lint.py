"""`topospread lint`: what is wrong with the constraints in manifests."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from topospread.cli import manifest_files, output
from topospread.cli.errors import DONE, BadInput
from topospread.cli.manifest_objects import set_namespace, warn_skipped
from topospread.cli.options import (
    ClientOptions,
    output_forms_option,
    pass_options,
    server_options,
)
from topospread.cli.render.lint import FORMS, lint_item, show
from topospread.cli.request_options import input_options
from topospread.cli.state_source import from_option
from topospread.codec.lint_manifests import (
    IGNORE_ANNOTATION,
    is_patch,
    is_workload,
    workload_from_manifest,
)
from topospread.config.documents import closest
from topospread.spread.linting.catalog import Severity
from topospread.spread.linting.engine import NOTHING_KNOWN, RULES, Knowledge, lint
from topospread.spread.linting.workloads import DomainNumbers
from topospread_client import (
    Consistency,
    ConstraintValidation,
    Fit,
    InvalidRequest,
    ManifestError,
    pod_from_manifest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from topospread.cli.manifest_files import Manifest
    from topospread.cli.render.lint import LintItem
    from topospread.spread.linting.workloads import LintedWorkload
from topospread_client import Client

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
        from topospread.cli.render.sarif import sarif_log

        output.dump(sarif_log(items), "json")
    else:
        show(items, len(workloads), options.output)
    return _exit_code(items, fail_on)


@contextmanager
def _cluster(options: ClientOptions, *, live: bool) -> Iterator[Callable[[Manifest], Knowledge]]:
    """What is known of the cluster of a server or of `--from`; nothing where neither is named."""
    # Under kubectl there is a source in any case, which is no reason to read a whole cluster.
    named = {"--address", "--cluster", "--from"} & {*options.sources.values()}
    if not live and not named:
        yield lambda _: NOTHING_KNOWN
        return
    with options.client() as client:
        yield lambda manifest: _explained(client, manifest)


def _explained(client: Client, manifest: Manifest) -> Knowledge:
    """What a server says of the pod that a workload would make.

    Raises:
        BadInput: the server cannot judge the pod.
    """
    try:
        found = client.explain_pod(
            pod_from_manifest(manifest.content),
            fit=Fit.NODE,
            domain_limit=1,
            skip_suggestions=True,
            consistency=Consistency(fully_consistent=True),
            validation=ConstraintValidation.IGNORE,
        ).explanation
    except InvalidRequest as error:
        raise BadInput(f"{manifest.title}: {error}") from error
    numbers = {
        each.index: DomainNumbers(
            each.eligible_domain_count,
            each.usable_domain_count,
            each.minimum.lowest_pod_count,
        )
        for each in found.constraints
    }
    return Knowledge(
        {} if found.defaulted else numbers,
        [
            RULES[each.code.name].found(
                -1 if each.constraint_index is None else each.constraint_index, each.text
            )
            for each in found.findings
            if each.code.name in RULES
        ],
    )


def _workloads(
    manifests: Sequence[Manifest], namespace: str | None
) -> list[tuple[Manifest, LintedWorkload]]:
    """What is looked at; the number of other objects is told on stderr.

    Raises:
        BadInput: with all manifests that cannot be read.
    """
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
