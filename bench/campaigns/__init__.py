"""Campaigns: hostile, broken and large load on real servers, run by hand, for minutes or hours.

`python -m bench.campaigns` lists them; each is a module with a command of its own, prints its
figures, and with `--check` ends with 1 when they break what the documents promise. Tests run some
of them for seconds. What they share: `campaign.py` makes a command of a function, `measured.py` has
a server with what it costs, `traffic.py` and `mutation.py` make requests, `attacker.py` and
`load.py` send them, `findings.py` says what is one. `against.py` compares answers with those of
another commit. They know servers by their addresses and processes alone.
"""
