"""The validating webhook: lints what is applied, and answers with warnings.

URLs are ``/validate`` and ``/validate/CLUSTER``. Nothing is refused unless the server was told to,
and nothing because of the server: what the state does not tell in time is left out.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from threading import Event
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from starlette.requests import HTTPConnection

from topospread.access.callers import Role
from topospread.checkpoints import Beneficiary, computing_for
from topospread.codec.lint_manifests import is_workload, workload_from_manifest
from topospread.errors import CallerGone, InvalidRequest, MethodNotServed, TopospreadError
from topospread.service.decisions.request import DEFAULT_CLUSTER, DecisionRequest
from topospread.service.linting import lint_at
from topospread.spread.linting.catalog import Severity
from topospread.spread.linting.engine import lint
from topospread.transports.http.admission_json import admission_response, read_review
from topospread.transports.http.authorization import require_role
from topospread.transports.http.bodies import Body, BodyBudget, decompressed
from topospread.transports.http.calls import (
    CallResponse,
    Submit,
    await_disconnect,
    response_start,
    trace_headers,
)
from topospread.transports.http.failures import HttpError, failure_of
from topospread_client import ManifestError, pod_from_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import Receive, Scope, Send

    from topospread.service.decisions.engine import Engine
    from topospread.spread.linting.catalog import LintFinding
    from topospread.spread.linting.workloads import LintedWorkload
    from topospread.telemetry.metrics import Metrics
    from topospread.telemetry.tracing import CallSpan, Tracing

LOG: Final = logging.getLogger(__name__)

ROOT: Final = "/validate"

MAX_BYTES: Final = 8 << 20
"""Of a review: it has an object and the one before, of 1.5 MiB at most."""

BUDGET_BODIES: Final = 4
"""How many of the largest bodies fit into memory for all requests in flight."""

TIMEOUT: Final = 2.0
"""Seconds for an answer where the API server does not say how long it waits."""

MARGIN: Final = 0.2
"""The part of the API server's timeout that is left for the way of the answer."""

MAX_TIMEOUT: Final = 30.0

_NOT_POST: Final = 405
_GONE: Final = 499
_TIMEOUT: Final = re.compile(r"^(\d{1,4})(ms|s)$")


class Webhook:
    """An ASGI application for ``/validate``.

    Args:
        engine: tells what the state makes of a workload's pod.
        tracing: starts spans.
        metrics: counts calls.
        submit: gives work to threads.
        refused: codes of findings for which objects are refused, and ``error`` for all errors.
        max_body_bytes: of a review, compressed or not.
    """

    def __init__(
        self,
        engine: Engine,
        tracing: Tracing,
        metrics: Metrics,
        submit: Submit,
        *,
        refused: frozenset[str] = frozenset(),
        max_body_bytes: int = MAX_BYTES,
    ) -> None:
        self._engine = engine
        self._tracing = tracing
        self._submit = submit
        self._refused = refused
        self._max_body_bytes = min(max_body_bytes, MAX_BYTES)
        self._budget = BodyBudget(BUDGET_BODIES * self._max_body_bytes)
        self._meter = metrics.call("Webhook/validate")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        started = time.perf_counter()
        try:
            cluster = _cluster(scope["path"])
            require_role(HTTPConnection(scope), Role.DECIDE, cluster)
            response = await self._respond(cluster, scope, receive)
        except CallerGone:
            self._meter.done("CANCELLED", time.perf_counter() - started)
            return
        except Exception as error:  # noqa: BLE001 - every failure becomes a status in one place
            failure = failure_of(error)
            response = CallResponse(
                failure.status, failure.body, failure.code, retry_after=failure.retry_after
            )
        self._meter.done(response.code, time.perf_counter() - started)
        await send(response_start(response))
        await send({"type": "http.response.body", "body": response.body})

    async def _respond(self, cluster: str, scope: Scope, receive: Receive) -> CallResponse:
        if scope["method"] != "POST":
            raise HttpError(_NOT_POST, MethodNotServed("the webhook is called with POST"))
        headers = dict(scope["headers"])
        deadline = time.monotonic() + _timeout(scope["query_string"])
        with Body(self._budget) as body:
            length = headers.get(b"content-length", b"")
            await body.read(receive, length, self._max_body_bytes)
            content, gone = body.content, Event()
            watching = asyncio.create_task(await_disconnect(receive, gone))
            try:
                return await asyncio.wrap_future(
                    self._submit(lambda: self._serve(cluster, content, headers, deadline, gone))
                )
            finally:
                watching.cancel()

    # ------------------------------ on whichever thread does the work

    def _serve(
        self,
        cluster: str,
        content: bytes,
        headers: Mapping[bytes, bytes],
        deadline: float,
        gone: Event,
    ) -> CallResponse:
        """Answer a review in a span of its own."""
        span = self._tracing.start("webhook validate", trace_headers(headers))
        span.set("topospread.cluster", cluster)
        try:
            encoding = headers.get(b"content-encoding", b"")
            body = decompressed(content, encoding, self._max_body_bytes)
            request = DecisionRequest(deadline=deadline, cluster=cluster)
            answer = self._answer(body, request, gone, span)
        except CallerGone as error:
            span.end_http(_GONE, error)
            raise
        except Exception as error:  # noqa: BLE001 - every failure becomes a status in one place
            failure = failure_of(error, span.traceparent)
            span.end_http(failure.status, error)
            return CallResponse(
                failure.status,
                failure.body,
                failure.code,
                traceparent=span.traceparent,
                retry_after=failure.retry_after,
            )
        span.end_http(200)
        return CallResponse(200, answer, traceparent=span.traceparent)

    def _answer(self, body: bytes, request: DecisionRequest, gone: Event, span: CallSpan) -> bytes:
        try:
            review = read_review(body)
        except InvalidRequest as wrong:
            raise HttpError(400, wrong) from wrong
        if review.content is None or not is_workload(review.content):
            return admission_response(review.uid, (), ())
        try:
            workload = workload_from_manifest(review.content)
            pod = pod_from_manifest(review.content).SerializeToString()
        except ManifestError:
            # The API server says so in its own words, or knows a type that this server does not.
            return admission_response(review.uid, (), ())
        findings = self._findings(workload, pod, request, gone)
        span.set("topospread.findings", len(findings))
        shown = [each for each in findings if each.severity.at_least(Severity.WARNING)]
        shown.sort(key=lambda each: each.severity.rank)
        refusals = [each for each in findings if self._refuses(each)]
        return admission_response(
            review.uid,
            [_line(each, workload) for each in shown if each not in refusals],
            [_line(each, workload) for each in refusals],
        )

    def _findings(
        self, workload: LintedWorkload, pod: bytes, request: DecisionRequest, gone: Event
    ) -> list[LintFinding]:
        """All findings; of the manifest alone where the state does not tell."""
        try:
            with computing_for(Beneficiary(request.deadline, lambda: not gone.is_set())):
                return lint_at(self._engine, request, workload, pod)
        except CallerGone:
            raise
        except TopospreadError as error:
            LOG.debug("the webhook lints without the state of %s: %s", request.cluster[:63], error)
            # A workload is small: this takes no time that would have to be left for it.
            return lint(workload)

    def _refuses(self, finding: LintFinding) -> bool:
        of_all = finding.severity is Severity.ERROR and Severity.ERROR.value in self._refused
        return of_all or finding.code.value in self._refused


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


def _line(finding: LintFinding, workload: LintedWorkload) -> str:
    """A finding in one line; the API server's client shows which object it is about."""
    index = finding.constraint
    if index < 0:
        return f"{finding.code.value}: {finding.text}"
    constraints = workload.pod.constraints
    key = f" ({constraints[index].topology_key})" if index < len(constraints) else ""
    return f"{finding.code.value}: constraint {index}{key}: {finding.text}"
