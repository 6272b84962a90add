"""The validating webhook: lints what is applied, and answers with warnings.

URLs are ``/validate`` and ``/validate/CLUSTER``, bodies AdmissionReviews v1 in JSON. Nothing is
refused unless the server was told to, and nothing because of the server: what the state does not
tell in time is left out. Nor is an object that is being deleted, or for what was wrong with it
before: controllers must be able to write both.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import orjson

from topospread.access.callers import Role
from topospread.checkpoints import Computation, computing_for
from topospread.codec.lint_manifests import (
    MOST_TEXT,
    MOST_VALUES,
    is_large,
    is_linted,
)
from topospread.codec.lint_parts import lint_parts
from topospread.errors import CallerGone, InvalidRequest, MethodNotServed, TopospreadError
from topospread.http.calls import HttpMethod, Lane
from topospread.service.decisions.request import DEFAULT_CLUSTER, DecisionRequest
from topospread.service.linting import lint_at
from topospread.spread.linting.catalog import Severity
from topospread.spread.linting.engine import lint
from topospread_client import is_own_kind

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from topospread.calls.call import Call
    from topospread.calls.executor import Executor
    from topospread.checkpoints import Turn
    from topospread.service.decisions.engine import Engine
    from topospread.spread.linting.catalog import LintFinding
    from topospread.spread.linting.workloads import LintedWorkload

LOG: Final = logging.getLogger(__name__)

VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"

MAX_WARNING: Final = 256
"""Characters of one warning; the API server may cut longer ones."""

MAX_WARNINGS: Final = 4096
"""Characters of all warnings of a request; the API server drops the rest."""

_INVALID: Final = 422

ROOT: Final = "/validate"

LABEL: Final = "Webhook/validate"
"""The call's name in metrics."""

MAX_BYTES: Final = 8 << 20
"""Of a review: it has an object and the one before, of 1.5 MiB at most."""

TIMEOUT: Final = 2.0
"""Seconds for an answer where the API server does not say how long it waits."""

MARGIN: Final = 0.2
"""The part of the API server's timeout that is left for the way of the answer."""

MAX_TIMEOUT: Final = 30.0

NOT_LINTED: Final = (
    f"not linted: it has more than {MOST_VALUES} values or {MOST_TEXT >> 10} KiB of text"
)

_TIMEOUT: Final = re.compile(r"^(\d{1,4})(ms|s)$")


@dataclass(frozen=True, slots=True)
class _Linted:
    """A part of an object that is linted.

    Attributes:
        pod: that it would make, as the bytes of a v1.Pod; None where no more is known of its pods
            than that they have constraints.
    """

    workload: LintedWorkload
    pod: bytes | None


class Webhook:
    """The method of the webhook.

    Args:
        turn: held while the state is looked at.
        refused: codes of findings for which objects are refused, and ``error`` for all errors.
    """

    def __init__(
        self, engine: Engine, executor: Executor, turn: Turn, refused: Collection[str] = ()
    ) -> None:
        self._engine = engine
        self._lane = Lane(executor)
        self._turn = turn
        self._refused = refused

    def method(self, path: str, query: bytes) -> HttpMethod:
        """What a URL asks for.

        Raises:
            MethodNotServed: there is no such page.
        """
        cluster = _cluster(path)
        return HttpMethod(
            "the webhook",
            LABEL,
            "webhook validate",
            cluster,
            Role.DECIDE,
            _timeout(query),
            partial(self._answer, cluster),
            lambda _: self._lane,
        )

    def _answer(self, cluster: str, call: Call) -> bytes:
        try:
            review = read_review(call.raw)
        except InvalidRequest as wrong:
            wrong.http_status = 400
            raise
        if review.content is None or review.is_leaving:
            return admission_response(review.uid, (), ())
        compared = review.before if self._refused else None
        if is_large(review.content) or (compared is not None and is_large(compared)):
            warnings = [NOT_LINTED] if is_linted(review.content) else []
            return admission_response(review.uid, warnings, ())
        linted = _linted(review.content)
        if not linted:
            return admission_response(review.uid, (), ())
        before = _before(compared)
        found = self._findings([*linted, *before], cluster, call)
        own = found[: len(linted)]
        call.span.set("topospread.findings", sum(map(len, own)))
        shown = [
            (each, part.workload)
            for part, findings in zip(linted, own, strict=True)
            for each in findings
            if each.severity.at_least(Severity.WARNING)
        ]
        shown.sort(key=lambda each: each[0].severity.rank)
        refusals = self._refusals(linted, own, before, found[len(linted) :])
        refused = [each for each, _ in refusals]
        several = len(linted) > 1
        return admission_response(
            review.uid,
            [_line(*each, several=several) for each in shown if each[0] not in refused],
            [_line(*each, several=several) for each in refusals],
        )

    def _findings(
        self, given: Sequence[_Linted], cluster: str, call: Call
    ) -> list[list[LintFinding]]:
        """All findings on each; of all manifests alone where the state does not tell of one.

        Otherwise an object would seem to have a finding that it lacked before.
        """
        request = DecisionRequest(deadline=call.deadline, cluster=cluster)
        try:
            # Not around all of the call: without a turn it is linted without the state.
            with Computation(call.deadline, call.active, turn=self._turn, share=True):
                return [
                    lint(each.workload)
                    if each.pod is None
                    else lint_at(self._engine, request, each.workload, each.pod)
                    for each in given
                ]
        except CallerGone:
            raise
        except TopospreadError as error:
            LOG.debug("the webhook lints without the state of %s: %s", cluster[:63], error)
            # A workload is small: this takes no time that would have to be left for it.
            with computing_for(None):
                return [lint(each.workload) for each in given]

    def _refusals(
        self,
        linted: Sequence[_Linted],
        found: Sequence[Sequence[LintFinding]],
        before: Sequence[_Linted],
        found_before: Sequence[Sequence[LintFinding]],
    ) -> list[tuple[LintFinding, LintedWorkload]]:
        """Why an object is refused: findings on it that the object before it, if any, lacks."""
        known = {
            _identity(each, part.workload)
            for part, findings in zip(before, found_before, strict=True)
            for each in findings
            if self._refuses(each)
        }
        return [
            (each, part.workload)
            for part, findings in zip(linted, found, strict=True)
            for each in findings
            if self._refuses(each) and _identity(each, part.workload) not in known
        ]

    def _refuses(self, finding: LintFinding) -> bool:
        of_all = finding.severity is Severity.ERROR and Severity.ERROR.value in self._refused
        return of_all or finding.code in self._refused


def _cluster(path: str) -> str:
    """The cluster that a URL names.

    Raises:
        MethodNotServed: there is no such page.
    """
    rest = path.removeprefix(ROOT)
    if rest in ("", "/"):
        return DEFAULT_CLUSTER
    name = rest.removeprefix("/")
    if not rest.startswith("/") or "/" in name:
        raise MethodNotServed(f"no such page: the webhook is {ROOT} or {ROOT}/CLUSTER")
    return name


def _timeout(query: bytes) -> float:
    """Seconds for an answer: most of what the API server says that it waits."""
    given = dict(parse_qsl(query.decode("ascii", "replace"))).get("timeout", "")
    found = _TIMEOUT.match(given)
    if not found:
        return TIMEOUT
    seconds = int(found[1]) / (1000 if found[2] == "ms" else 1)
    return min(MAX_TIMEOUT, seconds * (1 - MARGIN))


def _linted(manifest: Mapping[str, Any]) -> list[_Linted]:
    """What is linted of an object; nothing of Kubernetes' own where a part cannot be read.

    The API server says so in its own words then, or knows a type that this server does not. In
    other kinds it may take any type.
    """
    parts = lint_parts(manifest, is_applied=True)
    is_own = manifest.get("kind") == "Pod" or is_own_kind(manifest)
    if is_own and any(each.workload.malformed for each in parts):
        return []
    pods = (each.pod() for each in parts)
    return [
        _Linted(each.workload, None if pod is None else pod.SerializeToString())
        for each, pod in zip(parts, pods, strict=True)
    ]


def _before(manifest: Mapping[str, Any] | None) -> list[_Linted]:
    """What is linted of the object before, whoever owned it and whatever it silenced.

    Neither is a part of how its pods are spread.
    """
    if manifest is None:
        return []
    metadata = manifest.get("metadata")
    unowned = (
        {key: value for key, value in metadata.items() if key != "ownerReferences"}
        if isinstance(metadata, dict)
        else metadata
    )
    return [
        replace(each, workload=replace(each.workload, ignored=frozenset()))
        for each in _linted({**manifest, "metadata": unowned})
    ]


def _identity(finding: LintFinding, workload: LintedWorkload) -> tuple[str, str, str, str]:
    """What a finding has in common with the same one on the object before.

    A pod has one constraint with a key and whenUnsatisfiable; its index moves with those before it.
    """
    constraints = workload.pod.constraints
    if not 0 <= finding.constraint < len(constraints):
        return finding.code, workload.path, "", ""
    spec = constraints[finding.constraint]
    return finding.code, workload.path, spec.topology_key, spec.when_unsatisfiable


def _line(finding: LintFinding, workload: LintedWorkload, *, several: bool) -> str:
    """A finding in one line; the API server's client shows which object it is about."""
    index = finding.constraint
    about = f"{finding.code}: " + (f"{workload.path}: " if several else "")
    if index < 0:
        return f"{about}{finding.text}"
    constraints = workload.pod.constraints
    key = f" ({constraints[index].topology_key})" if index < len(constraints) else ""
    return f"{about}constraint {index}{key}: {finding.text}"


@dataclass(frozen=True, slots=True)
class Review:
    """What the webhook is asked.

    Attributes:
        uid: of the request, which the answer repeats.
        content: the object with the namespace that it goes to; None where one is deleted.
        before: the object as it is stored, with its namespace; None where there is none.
    """

    uid: str
    content: Mapping[str, Any] | None
    before: Mapping[str, Any] | None = None

    @property
    def is_leaving(self) -> bool:
        """Whether the object was deleted and waits for its finalizers to be removed."""
        metadata = None if self.content is None else self.content.get("metadata")
        return isinstance(metadata, dict) and bool(metadata.get("deletionTimestamp"))


def read_review(body: bytes) -> Review:
    """Read a review; InvalidRequest where it is none of v1."""
    try:
        review = orjson.loads(body)
    except orjson.JSONDecodeError as wrong:
        raise InvalidRequest(f"the body is no JSON: {wrong}") from wrong
    if not isinstance(review, dict) or review.get("kind") != KIND:
        raise InvalidRequest.at("kind", f"must be {KIND}")
    if review.get("apiVersion") != VERSION:
        raise InvalidRequest.at("apiVersion", f"must be {VERSION}")
    request = review.get("request")
    if not isinstance(request, dict):
        raise InvalidRequest.at("request", "must be an object")
    uid = request.get("uid")
    if not isinstance(uid, str) or not uid:
        raise InvalidRequest.at("request.uid", "must be a string that is not empty")
    return Review(uid, _object(request, "object"), _object(request, "oldObject"))


def _object(request: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """One of the request's objects with the namespace that it is in; None where there is none.

    Raises:
        InvalidRequest: it is no object.
    """
    content, namespace = request.get(name), request.get("namespace")
    if content is None:
        return None
    if not isinstance(content, dict):
        raise InvalidRequest.at(f"request.{name}", "must be an object")
    metadata = content.get("metadata")
    if not namespace or not isinstance(metadata, dict) or metadata.get("namespace"):
        return content
    return {**content, "metadata": {**metadata, "namespace": namespace}}


def admission_response(uid: str, warnings: Sequence[str], refusals: Sequence[str]) -> bytes:
    """The answer, in JSON; without refusals the object is allowed."""
    response: dict[str, Any] = {"uid": uid, "allowed": not refusals}
    if refusals:
        response["status"] = {
            "status": "Failure",
            "reason": "Invalid",
            "code": _INVALID,
            "message": "; ".join(bounded_lines(refusals)),
        }
    if shown := bounded_lines(warnings):
        response["warnings"] = shown
    return orjson.dumps({"apiVersion": VERSION, "kind": KIND, "response": response})


def bounded_lines(warnings: Sequence[str]) -> list[str]:
    """As many lines as an API server passes on, each as long as it passes on."""
    shown: list[str] = []
    left = MAX_WARNINGS
    for position, warning in enumerate(warnings):
        line = "".join(each if each.isprintable() else "?" for each in warning)
        line = line if len(line) <= MAX_WARNING else f"{line[: MAX_WARNING - 3]}..."
        more = f"{len(warnings) - position} more findings: topospread lint shows them"
        last = position == len(warnings) - 1
        if len(line) + (0 if last else len(more)) > left:
            shown.append(more)
            break
        shown.append(line)
        left -= len(line)
    return shown
