"""What signal handlers say reaches the thread that waits, whenever the signal comes."""

from __future__ import annotations

import signal
import threading

from tests.waiting import PATIENCE
from topospread.app.stop_event import StopEvent


def test_a_signal_may_come_at_any_moment(monkeypatch):
    """In the middle of the wait's own steps, too, where an event's lock is held."""
    # One that comes just before the thread sleeps wakes nobody, and is seen at the next look.
    monkeypatch.setattr("topospread.app.stop_event.POLL_SECONDS", 0.001)
    main = threading.get_ident()
    now: list[StopEvent] = []
    go_on = threading.Semaphore(0)

    def ring() -> None:
        while go_on.acquire() and now:
            signal.pthread_kill(main, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda *_: now[-1].set())
    ringer = threading.Thread(target=ring)
    ringer.start()
    try:
        for _ in range(3000):
            now.append(StopEvent())
            go_on.release()
            assert now[-1].wait(PATIENCE)
    finally:
        now.clear()
        go_on.release()
        ringer.join()
        signal.signal(signal.SIGUSR1, before)


def test_waiting_ends_with_its_time_and_what_was_said_stays():
    reported = StopEvent()
    assert not reported
    assert not reported.wait(0.01)
    reported.set()
    reported.set()
    assert reported
    assert reported.wait()
    assert reported.wait(0)
