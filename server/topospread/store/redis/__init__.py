"""The store in Redis: hashes for the objects, a stream for the log, one Lua script for every write.

``open`` opens one and checks its servers; ``store`` has the contract, ``following`` its waits for
the log. Below them ``script`` calls store.lua and ``client`` runs commands on the servers that
``topology`` or ``sentinel`` name, by the driver's ``connections``; ``failures`` has their errors.

May not import anything of SQLite; only the composition root may import this package. No metrics, no
logs but of its servers.
"""
