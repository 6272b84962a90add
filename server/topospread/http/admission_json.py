"""AdmissionReview v1 in JSON: what a validating webhook is asked, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from topospread.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"

MAX_WARNING: Final = 256
"""Characters of one warning; the API server may cut longer ones."""

MAX_WARNINGS: Final = 4096
"""Characters of all warnings of a request; the API server drops the rest."""

_INVALID: Final = 422


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
