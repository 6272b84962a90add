"""A fake Kubernetes API server, as far as a sync and a scheduler need one.

It speaks what they rely on in the real one: lists in pages, watches that are chunked streams with
bookmarks, 410 Gone, field selectors, deletions, and the binding of pods. It authorizes nothing and
validates nothing. `python -m bench sync` measures the sync against it, so bench imports it.
"""
