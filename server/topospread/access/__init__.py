"""Who may call for what, and what is written down of it.

- ``callers``: roles, and a caller with the clusters in which it has them.
- ``authentication``: finds the caller by token or by the names in its certificate.
- ``certificates``: these names, read strictly from DER.
- ``file``: the access file.
- ``rate_limit``: a bucket for each caller; ``audit``: the log of writes and of denied calls.

Knows no transport: ``calls.access`` and ``http.app`` ask it for theirs.
"""
