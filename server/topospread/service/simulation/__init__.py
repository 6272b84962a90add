"""Simulate, and the choice between node groups: placements on a state that is changed in memory."""
