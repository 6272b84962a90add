"""Manifests, messages, stored bytes and values: what survives each step, and what is refused."""
