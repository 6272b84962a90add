"""The HTTP way in: scheduler extender, metrics, health and the page."""
