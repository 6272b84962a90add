"""A scheduler for Kubernetes that asks topospread where each pod goes; see README.md."""
