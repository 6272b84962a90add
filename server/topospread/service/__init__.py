"""The use cases, one a file: plain values in, plain values out, no transport known.

Rules come from the rules book, state from a view that is resolved once a call.
"""
