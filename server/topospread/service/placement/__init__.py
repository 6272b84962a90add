"""Places held for pods: PlacePod, ReserveNode, ReleaseReservation.

``place`` chooses a node and is where calls begin. ``places`` judges and writes them, many at once,
so that no two servers break a constraint together; ``tasks`` has those who wait for it, in turn.

A place is a reservation in the store; nothing is held in this process.
"""
