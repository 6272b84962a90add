"""Threads that carry out calls: pools with bounded queues, and turns for calls that take long."""
