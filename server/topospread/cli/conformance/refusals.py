"""What an API server refuses in pods' constraints, and kube-scheduler in plugin arguments."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from topospread.cli.conformance.cases import Case, Difference
from topospread.cli.conformance.comparing import ABSENT, unordered
from topospread_client import (
    Consistency,
    ConstraintValidation,
    InvalidRequest,
    ManifestError,
    Settings,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topospread.cli.conformance.cases import Cluster, Ground
    from topospread.cli.conformance.recordings import Record

_ANY_CLUSTER: Final[Cluster] = {
    "nodes": [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "any"}}]
}
_PLAIN_POD: Final = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "any", "namespace": "default"},
}
_CUT: Final = "…"
_ROOTS: Final = ("pod.object.", "settings.args.")
"""Where in a request pods and arguments are."""


def validation_case(record: Record) -> Case:
    """A case of validation.jsonl: a pod that is created."""
    return Case(
        record.content["name"], record.source, _ANY_CLUSTER, partial(_of_pod, record.content)
    )


def args_case(record: Record) -> Case:
    """A case of args.jsonl: PodTopologySpreadArgs that are configured."""
    return Case(
        record.content["name"], record.source, _ANY_CLUSTER, partial(_of_args, record.content)
    )


def _of_pod(record: Mapping[str, Any], ground: Ground) -> Sequence[Difference]:
    consistency = Consistency(at_least_as_fresh=ground.revision)
    try:
        ground.client.pre_filter(
            record["pod"], consistency=consistency, validation=ConstraintValidation.STRICT
        )
    except InvalidRequest as error:
        # Errors elsewhere in the pod are in the recorded message, and not our business.
        message = None if record.get("otherErrors") else record.get("message")
        return _refused(record["expect"], error, _after_title(message, record["pod"]))
    except ManifestError as error:
        return [Difference("request", "can be sent", str(error))]
    return _accepted(record["expect"])


def _of_args(record: Mapping[str, Any], ground: Ground) -> Sequence[Difference]:
    consistency = Consistency(at_least_as_fresh=ground.revision)
    settings = Settings(args=record["args"])
    try:
        ground.client.pre_filter(_PLAIN_POD, consistency=consistency, settings=settings)
    except InvalidRequest as error:
        return _refused(record["expect"], error, record.get("message"))
    except ManifestError as error:
        return [Difference("request", "can be sent", str(error))]
    return _accepted(record["expect"])


def _accepted(expected: Sequence[Mapping[str, Any]]) -> list[Difference]:
    return [Difference("violations", _text(one), ABSENT) for one in expected]


def _refused(
    expected: Sequence[Mapping[str, Any]], error: InvalidRequest, message: str | None
) -> list[Difference]:
    """Everything wrong must be there; the last one may say how many more there are."""
    got = [_own(violation.text) for violation in error.violations if violation.field]
    wanted = [_text(one) for one in expected]
    more = _more(error)
    if more:
        found = unordered("violations", [text for text in wanted if text in got], got)
        if len(got) + more != len(wanted):
            found.append(Difference("violations", f"{len(wanted)} in all", f"{len(got) + more}"))
    else:
        found = unordered("violations", wanted, got)
    if not wanted and not got:
        found.append(Difference("request", "accepted", f"refused: {error}"))
    if message is not None and not _same_message(message, str(error)):
        found.append(Difference("message", message, str(error)))
    return found


def _own(text: str) -> str:
    """As the API server says it, which is given nothing but the pod, or the arguments."""
    for root in _ROOTS:
        text = text.removeprefix(root)
    return text


def _more(error: InvalidRequest) -> int:
    """How many violations were left out: trailers have a limit."""
    last = error.violations[-1] if error.violations else None
    if last is None or last.field or not last.description.startswith(_CUT):
        return 0
    return next((int(word) for word in last.description.split() if word.isdigit()), 0)


def _text(violation: Mapping[str, Any]) -> str:
    parts = (violation["field"], violation["type"], violation["detail"])
    return ": ".join(part for part in parts if part)


def _after_title(message: str | None, pod: Mapping[str, Any]) -> str | None:
    """The API server's text without ``Pod "NAME" is invalid:``."""
    if message is None:
        return None
    return message.removeprefix(f'Pod "{pod["metadata"]["name"]}" is invalid: ')


def _same_message(wanted: str, got: str) -> bool:
    if got.endswith(_CUT):
        return wanted.startswith(got.removesuffix(_CUT))
    return wanted == got
