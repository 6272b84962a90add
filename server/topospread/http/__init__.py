"""The HTTP transport: metrics, health, the scheduler extender and the validating webhook."""
