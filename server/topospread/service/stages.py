"""How long the parts of a decision took: for spans and metrics, which are kept elsewhere."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Stages:
    """Seconds by stage; 0 for what was not done.

    Attributes:
        resolve: from the call's arrival to a view that is fresh enough and counts all groups.
        pre_filter: domain counts, minimum, rejected domains.
        filter: verdicts on nodes.
        pre_score: weights and counts for scoring; part of `score` where nodes are judged one by
            one.
        score: scores and the choice of the best.
    """

    resolve: float = 0.0
    pre_filter: float = 0.0
    filter: float = 0.0
    pre_score: float = 0.0
    score: float = 0.0
