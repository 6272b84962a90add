"""Metrics, traces and logs: what a server says of itself.

- :class:`~topospread.telemetry.metrics.Metrics`: all metrics of a process. What decisions count
  stands in ``meters``, without a lock; ``families`` are made at a scrape.
- :class:`~topospread.telemetry.tracing.Tracing`: begins the span of each call (``spans``), which
  has ids also where nothing is recorded; ``export`` sends what is recorded.
- :func:`~topospread.telemetry.logs.start_logging`: lines on stderr, without secrets.

It imports no other package but the error tree.
"""
