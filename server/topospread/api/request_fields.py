"""Fields that requests have in common, and all violations of a request at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from topospread.api.decode import (
    consistency_of,
)
from topospread.checkpoints import checkpoint
from topospread.errors import (
    InvalidRequest,
)
from topospread.replica.view import DEFAULT_CONSISTENCY, Consistency
from topospread.service.decisions.request import DEFAULT_CLUSTER
from topospread.service.state.pages import PageRequest

if TYPE_CHECKING:
    from collections.abc import Callable


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
