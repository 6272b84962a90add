"""Rendering of answers that is too long to stand beside its verb."""
