"""The composition root: names the concrete backends, puts the rooms together, runs the processes.

Nothing below knows it; the command line is all that stands above.
"""
