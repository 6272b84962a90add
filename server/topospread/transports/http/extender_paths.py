"""Which call a URL of the scheduler extender stands for.

``/extender/v1/VERB`` or ``/extender/v1/CLUSTER/VERB``, with ``?cluster=`` and ``?mode=``.
kube-scheduler joins its urlPrefix and a verb with a slash, so that a query goes with the verb.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final
from urllib.parse import parse_qsl

from topospread.errors import InvalidRequest, NotOffered
from topospread.service.asks import DEFAULT_CLUSTER
from topospread.transports.http.failures import Refused

ROOT: Final = "/extender/v1/"

PLACE: Final = "place"


class Verb(Enum):
    """What a scheduler may call. `place` is `filter` in the mode of that name."""

    FILTER = "filter"
    PRIORITIZE = "prioritize"
    PREEMPT = "preempt"


@dataclass(frozen=True, slots=True)
class Target:
    """A call.

    Attributes:
        places: filter holds the node that it answers.
    """

    verb: Verb
    cluster: str
    places: bool = False


_KNOWN: Final = f"filter, {PLACE}, prioritize and preempt"


def target_of(path: str, query: bytes, places: bool) -> Target:
    """The call that a URL stands for.

    Args:
        path: of the request.
        query: as it was sent.
        places: filter's mode where the URL does not say.

    Raises:
        NotOffered: there is no such call.
        Refused: its query cannot be read.
    """
    parts = path.removeprefix(ROOT).split("/") if path.startswith(ROOT) else []
    if len(parts) not in (1, 2) or not parts[-1]:
        raise NotOffered(f"no such page: calls are {ROOT}[CLUSTER/]VERB with {_KNOWN}")
    asked = _asked(query)
    mode = asked.get("mode", "")
    if mode not in ("", "filter", PLACE):
        raise Refused(
            400, InvalidRequest.at("mode", f"must be filter or {PLACE}, not {mode[:40]!r}")
        )
    cluster = _cluster(parts[0] if len(parts) == 2 else "", asked.get("cluster", ""))
    name = parts[-1]
    if name == PLACE:
        return Target(Verb.FILTER, cluster, places=True)
    try:
        verb = Verb(name)
    except ValueError:
        raise NotOffered(f"unknown verb {name[:40]!r}: this extender has {_KNOWN}") from None
    return Target(verb, cluster, (mode == PLACE if mode else places) and verb is Verb.FILTER)


def _asked(query: bytes) -> dict[str, str]:
    asked = dict(parse_qsl(query.decode("ascii", "replace"), keep_blank_values=True))
    if strange := asked.keys() - {"cluster", "mode"}:
        name = min(strange)[:40]
        text = "unknown parameter: there are cluster and mode"
        raise Refused(400, InvalidRequest.at(name, text, "Forbidden"))
    return asked


def _cluster(in_path: str, in_query: str) -> str:
    if in_path and in_query and in_path != in_query:
        text = f"the path names cluster {in_path[:253]!r}, and the query {in_query[:253]!r}"
        raise Refused(400, InvalidRequest.at("cluster", text))
    return in_path or in_query or DEFAULT_CLUSTER
