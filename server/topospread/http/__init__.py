"""The HTTP transport: scheduler extender, metrics, health and the start page."""
