"""The store in Redis: hashes for the objects, a stream for the log, one Lua script for every write.

May not import anything of SQLite; only the composition root may import this package. No metrics, no
logs.
"""
