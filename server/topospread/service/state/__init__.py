"""The state itself: objects read, written, listed and watched.

``read`` and ``write`` are what ClusterStateService does, ``log`` its watches and ``pages`` the
tokens of its lists. ``consistent_read`` gives plans and rankings the objects of one view.

Writes go into the history that this server follows, and into no other: see ``within_history``.
"""
