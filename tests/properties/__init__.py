"""The reference model and the product, compared on random clusters, questions and histories.

How many examples: the hypothesis profiles of tests/conftest.py; `thorough` is for runs by hand.
"""
