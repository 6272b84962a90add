"""Matching, validation and texts of Kubernetes values."""
