"""The audit log: a line for each call that changes something, by whom, from where, and what of it.

Calls that are refused at the door have theirs from :mod:`topospread.access.refusals`.

Lines are logged at info by the logger ``topospread.audit``; the fields are the line's own. They
hold names and numbers, never contents.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topospread.access.callers import Caller

LOG: Final = logging.getLogger("topospread.audit")

MAX_TEXT: Final = 512
"""Characters of a field: room for the longest names of Kubernetes, not for what callers make up."""


def audit(
    call: str, caller: Caller | None, address: str, code: str, what: Mapping[str, object]
) -> None:
    """Log a call.

    Args:
        call: its name, for example ``ClusterStateService/ApplyObjects``.
        caller: who made it; one without a name is anybody, None a stranger to the access file.
        address: where it came from.
        code: how it ended, for example ``OK``.
        what: cluster, revision, and what else there is to say.
    """
    name = "stranger" if caller is None else caller.name or "anybody"
    fields = {"call": call, "caller": name, "address": address, "code": code, **what}
    LOG.info("%s %s", call, code, extra={key: _cut(value) for key, value in fields.items()})


def _cut(value: object) -> object:
    return f"{value[:MAX_TEXT]}…" if isinstance(value, str) and len(value) > MAX_TEXT else value
