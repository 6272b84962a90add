"""The store in a SQLite file, or in memory: standard library only, durable, no second process.

``store`` has the contract and follows the log, ``tables`` one cluster as a transaction sees it, and
``connections`` whatever concerns the file: who may write, and whether it still is the file.

Local file systems only: SQLite's locks and its shared memory do not work over a network file
system. May not import anything of Redis; only the composition root may import this package.
"""
