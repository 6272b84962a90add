"""An API server of our own, as far as a feed and a scheduler need one: for measurements and tests.

It speaks what they rely on in the real one: lists in pages, watches that are chunked streams with
bookmarks, 410 Gone, field selectors, deletions, and the binding of pods. It authorizes nothing and
validates nothing.
"""
