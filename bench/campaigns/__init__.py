"""Campaigns: hostile, broken and large load on real servers, run by hand, for minutes or hours.

`python -m bench.campaigns` lists them; each is a module with a command of its own, prints its
figures, and with `--check` ends with 1 when they break what the documents promise. Tests run some
of them for seconds.
"""
