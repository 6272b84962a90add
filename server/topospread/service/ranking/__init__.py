"""RankDeletions: the order in which the pods of a workload go, and what that leaves.

`DeletionRanker.rank()` in `rank.py` is the entry. `request.py` checks what is asked, `deciders.py`
finds whose pods they are, and what its controller makes of an order.
"""
