"""How the rollouts of one request share what may be judged."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from topospread.service.simulation.rollouts import fair_share

WANTED = st.lists(st.integers(0, 600), min_size=1, max_size=12)


@given(WANTED, st.integers(0, 3000), st.randoms(use_true_random=False))
def test_each_has_its_fair_share_in_whatever_order(wanted, total, chosen):
    most = fair_share(wanted, total)
    assert sum(min(each, most) for each in wanted) <= total
    assert most >= total // len(wanted)
    mixed = [*wanted]
    chosen.shuffle(mixed)
    assert fair_share(mixed, total) == most


@given(WANTED)
def test_all_have_what_they_want_where_there_is_enough(wanted):
    assert fair_share(wanted, sum(wanted)) >= max(wanted)
