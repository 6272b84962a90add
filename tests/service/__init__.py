"""The use cases on a store in memory: cycles, settings, selections, orders and limits."""
