"""Explain a pod at a snapshot: what the accounts, the advice and the cautions say together.

To explain a pod of one's own state, live or imagined::

    case = Case(snapshot, pod, rules, constraints, demand, name=name, uid=uid)
    explanation = explained(case, limit=20)

The snapshot must count all groups of the constraints (`Engine.begin` and `begin_all` see to that).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.kube.fit_message import error_message, fit_message
from topospread.service.explaining.accounts import accounts
from topospread.service.explaining.advice import advice
from topospread.service.explaining.cautions import cautions
from topospread.service.explaining.findings import Explanation
from topospread.spread.verdicts import LABEL_MISSING, SKIP, SUCCESS, TOO_SKEWED, VERDICTS, error

if TYPE_CHECKING:
    from collections import Counter

    from topospread.service.explaining.case import Case
    from topospread.spread.verdicts import Status

DEFAULT_LIMIT: Final = 20
MAX_LIMIT: Final = 1000
"""Domains that are listed of each constraint."""


def explained(case: Case, limit: int = DEFAULT_LIMIT, *, advise: bool = True) -> Explanation:
    """Why a pod fits where it does.

    Args:
        case: the pod at its state.
        limit: domains to list of each constraint, those with the fewest pods and with the most.
        advise: try out what would let it in; costs some judgements when it fits nowhere.
    """
    refused = case.refused_by(case.snapshot.alive)
    return Explanation(
        status=_status(case),
        nodes=case.snapshot.node_count,
        passing=int(np.count_nonzero(case.passing)),
        fitting=case.fits,
        message="" if case.fits else _message(case, refused),
        refused=tuple(refused.most_common()),
        defaulted=case.constraints.defaulted,
        constraints=accounts(case, limit),
        suggestions=advice(case) if advise else (),
        warnings=cautions(case),
        not_modelled=case.demand.not_modelled,
    )


def _status(case: Case) -> Status:
    if case.constraints.hard.error:
        return error(case.constraints.hard.error)
    return SUCCESS if case.hard else SKIP


def _message(case: Case, refused: Counter[str]) -> str:
    """kube-scheduler's words: each node with the reasons of the first filter that refuses it."""
    if case.constraints.hard.error and case.snapshot.node_count:
        return error_message(case.constraints.hard.error)
    counts = refused.copy()
    for verdict in (TOO_SKEWED, LABEL_MISSING):
        nodes = int(np.count_nonzero(case.usable & (case.verdicts == verdict)))
        if nodes:
            counts[VERDICTS[verdict].reasons[0]] += nodes
    return fit_message(case.snapshot.node_count, counts)
