"""`python -m bench`: how fast the server is on this machine, against the limits of its stack.

Each bench starts the servers that it measures, calls them with a client that costs next to nothing,
and interleaves what it compares in rounds, so that a noisy machine is noisy for both. The package
is part of the repository and of no distribution. It takes helpers from tests: what
starts servers and Redis (tests.servers, tests.redis_server), the fake Kubernetes API server
(tests.apiserver), and the one that writes without its precondition (tests.bench.race.unguarded),
which shows that a race finds breaches. Tests run its campaigns for seconds.
"""
