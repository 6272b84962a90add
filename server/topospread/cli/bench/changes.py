"""Changes: how many are taken in, what they cost decisions, and when they are seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread.cli.bench.applying import measure_applying
from topospread.cli.bench.busy import measure_busy
from topospread.cli.bench.figures import Figures
from topospread.cli.bench.visibility import measure_visibility

if TYPE_CHECKING:
    from topospread.cli.bench.plan import Plan


def measure(plan: Plan) -> Figures:
    """See :mod:`.applying`, :mod:`.busy` and :mod:`.visibility`."""
    figures = Figures()
    for part in (measure_applying, measure_busy, measure_visibility):
        part(plan, figures)
    return figures
