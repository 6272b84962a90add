"""The store in a SQLite file, or in memory: standard library only, durable, no second process.

Local file systems only: SQLite's locks and its shared memory do not work over a network file
system. May not import anything of Redis; only the composition root may import this package.
"""
