"""Fields that requests have in common, and all violations of a request at once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from topospread.api.decode import (
    consistency_of,
    fit_of,
    node_of,
    pod_of,
    pods_on_nodes_of,
    request_id_of,
    reservation_ttl_of,
    selector_of,
    settings_of,
    strict,
    under_pod,
)
from topospread.checkpoints import checkpoint
from topospread.errors import (
    FieldViolation,
    InvalidPod,
    InvalidRequest,
)
from topospread.kube.objects import DEFAULT_NAMESPACE
from topospread.kube.violations import NOT_SUPPORTED, noted, required
from topospread.replica.view import DEFAULT_CONSISTENCY, Consistency
from topospread.service.decisions.evaluate import check_top_k
from topospread.service.decisions.pods import read_pod
from topospread.service.decisions.request import DEFAULT_CLUSTER
from topospread.service.explaining.explain import check_limit
from topospread.service.state.read import PageRequest
from topospread.store.checks import check_cluster
from topospread.store.model import Key, Kind
from topospread.store.values import OBSERVABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from topospread.service.decisions.engine import Engine


def page_request(request: Any) -> PageRequest:
    """The page that a request asks for; its token is bound to the other fields of the request."""
    arguments = type(request)()
    arguments.CopyFrom(request)
    arguments.ClearField("page_size")
    arguments.ClearField("page_token")
    if "cluster" in request.DESCRIPTOR.fields_by_name:
        arguments.cluster = request.cluster or DEFAULT_CLUSTER
    # No two methods have the same request.
    name = request.DESCRIPTOR.full_name.encode()
    written = name + b"\0" + arguments.SerializeToString(deterministic=True)
    return PageRequest(request.page_size, request.page_token, written)


def check_required(value: str, path: str, detail: str = "") -> None:
    """Check that a field is set.

    Raises:
        InvalidRequest: it is empty.
    """
    if not value:
        raise InvalidRequest.of([required(path, detail)])


def object_kind(kind: int, path: str) -> Kind:
    """The kind of an object that clients write.

    Raises:
        InvalidRequest: none, or one that is not known.
    """
    return any_kind(kind, path, OBSERVABLE)


def any_kind(kind: int, path: str, known: Sequence[Kind]) -> Kind:
    """The store's kind of a number on the wire.

    Raises:
        InvalidRequest: none of those that are known here.
    """
    # The store's kinds have the same numbers.
    found = next((each for each in known if each.value == kind), None)
    if found is None:
        names = ", ".join(f"KIND_{each.name}" for each in known)
        text = f"must be one of {names}"
        raise InvalidRequest.of([FieldViolation(path, text, NOT_SUPPORTED, kind)])
    return found


def object_key(kind: int, namespace: str, name: str, path: str) -> Key:
    """The store's key of an object.

    Raises:
        InvalidRequest: its kind is not known.
    """
    known = object_kind(kind, path)
    return Key(known, "" if known is Kind.NODE else namespace or DEFAULT_NAMESPACE, name)


def label_matcher(request: Any) -> Callable[[Mapping[str, str]], bool] | None:
    """A function that matches labels with a list's selector; None for all.

    Raises:
        InvalidRequest: the selector is none.
    """
    if not request.HasField("label_selector"):
        return None
    return selector_of(request.label_selector, "labelSelector").matches


def required_consistency(request: Any) -> Consistency:
    """The required freshness of the state behind a response."""
    return (
        consistency_of(request.consistency)
        if request.HasField("consistency")
        else DEFAULT_CONSISTENCY
    )


def check_all(*parts: Callable[[], object]) -> None:
    """Parse all parts of a request.

    Raises:
        InvalidRequest: with the violations of all of them.
    """
    refused = list(filter(None, map(_refusal, parts)))
    if len(refused) == 1:
        raise refused.pop()  # without a reference cycle through this stack frame and the list
    violations = [each for error in refused for each in error.violations]
    refused.clear()  # for the same reason
    if violations:
        raise InvalidRequest.of(violations)


def _refusal(part: Callable[[], object]) -> InvalidRequest | None:
    checkpoint()
    try:
        part()
    except InvalidRequest as refused:
        return refused
    return None


def raise_all_violations(first: InvalidRequest, request: Any, engine: Engine) -> None:
    """Find all violations of a request about a pod, after the first one was found.

    Decoding stops at the first violation, which costs a valid request nothing; an invalid one is
    read again. No error is raised that this function holds: with its traceback it would be a
    reference cycle, and keep the request until the garbage collector runs.

    Args:
        first: the violation; the caller raises it again.
        request: a frame.
        engine: has the limits and the profiles.

    Raises:
        InvalidRequest: with more violations than the first, or with paths that begin at the
            request.
    """
    of_pod = isinstance(first, InvalidPod)
    own = under_pod(first, request.pod).violations if of_pod else first.violations
    known = {(each.field, each.description) for each in own}
    found: list[FieldViolation] = []
    for part in _parts(request, engine):
        checkpoint()
        with noted(found):
            part()
    more = [each for each in found if (each.field, each.description) not in known]
    if more:
        raise InvalidRequest.of([*own, *more]) from first
    if of_pod:
        raise under_pod(first, request.pod) from first


def _parts(request: Any, engine: Engine) -> Iterator[Callable[[], object]]:
    """Functions that parse the fields of requests about pods."""
    yield partial(check_cluster, request.cluster or DEFAULT_CLUSTER)
    readers: dict[str, Callable[[], object]] = {
        "pod": lambda: _read_pod(request, engine),
        "node": lambda: node_of(request),
        "top_k": lambda: check_top_k(engine, request.top_k),
        "domain_limit": lambda: check_limit(request.domain_limit),
        "fit": lambda: fit_of(request.fit),
        "reservation_ttl": lambda: reservation_ttl_of(request),
        "request_id": lambda: request_id_of(request),
        "settings": lambda: engine.rules_for(settings_of(request.settings), ""),
        "consistency": lambda: consistency_of(request.consistency),
        "validation": lambda: strict(request.validation),
    }
    fields = request.DESCRIPTOR.fields_by_name
    yield from [read for name, read in readers.items() if name in fields]
    for name in ("add_pods", "remove_pods"):
        if name in fields:
            camel = fields[name].json_name
            for number, move in enumerate(getattr(request, name)):
                yield partial(pods_on_nodes_of, [move], camel, number)


def _read_pod(request: Any, engine: Engine) -> None:
    has_cycle = "cycle" in request.DESCRIPTOR.fields_by_name and request.cycle
    if has_cycle and not request.HasField("pod"):
        return  # the cycle has it
    pod = pod_of(request)
    if isinstance(pod, bytes):
        try:
            read_pod(pod)
        except InvalidPod as wrong:
            raise under_pod(wrong, request.pod) from wrong
