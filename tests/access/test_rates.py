"""Token buckets, against the plain count of what should have been let through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topospread.access import rate_limit
from topospread.access.rate_limit import RateLimiter
from topospread.errors import RateExceeded


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Bucket:
    """The same, as it is reported in books: a number of tokens that grows with time."""

    def __init__(self, rate: float, burst: int, now: float) -> None:
        self.rate, self.burst = rate, burst
        self.tokens, self.at = float(burst), now

    def take(self, now: float) -> float:
        """0, or the seconds until there is a token."""
        self.tokens = min(self.burst, self.tokens + (now - self.at) * self.rate)
        self.at = now
        if self.tokens >= 1 - 1e-6:
            self.tokens -= 1
            return 0.0
        return (1 - self.tokens) / self.rate


@given(
    rate=st.sampled_from([0.5, 1.0, 4.0, 1000.0]),
    burst=st.integers(1, 5),
    pauses=st.lists(st.sampled_from([0.0, 0.001, 0.25, 0.5, 1.0, 3.0, 100.0]), max_size=60),
)
def test_a_limiter_admits_what_its_bucket_holds(rate, burst, pauses):
    clock = Clock()
    limited, model = RateLimiter(rate, burst, clock), Bucket(rate, burst, clock.now)
    for pause in pauses:
        clock.now += pause
        wait = model.take(clock.now)
        if wait:
            with pytest.raises(RateExceeded) as refused:
                limited.take("a")
            assert refused.value.retry_after == pytest.approx(wait, abs=1e-5)
        else:
            limited.take("a")


def test_callers_have_buckets_of_their_own():
    limited = RateLimiter(1.0, 1, Clock())
    limited.take("a")
    limited.take("b")
    with pytest.raises(RateExceeded, match=r"more than 1 calls a second: try again in 1\.000 s"):
        limited.take("a")


def test_a_limiter_keeps_a_bounded_number_of_buckets(monkeypatch):
    monkeypatch.setattr(rate_limit, "MAX_CALLERS", 100)
    limited = RateLimiter(1.0, 1, Clock())
    for caller in range(1000):
        limited.take(caller)
    assert len(limited._full_at) == 100
    with pytest.raises(RateExceeded):
        limited.take(999)
