"""`topospread bench`: how fast the server is on this machine, against the limits of its stack.

One file a bench. Each starts the servers that it measures, asks them with a client that costs next
to nothing, and interleaves what it compares in rounds, so that a noisy machine is noisy for both.
Nothing here is imported by a server that serves.
"""
