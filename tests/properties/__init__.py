"""The reference model and the product, compared on random clusters, questions and histories.

How many examples: the hypothesis profiles of tests/conftest.py. A thorough run by hand, 20,000
examples a property, begins with the cases, which take some minutes:

    HYPOTHESIS_PROFILE=thorough .venv/bin/python -m pytest tests/properties/test_cases.py \
        --timeout=0 --hypothesis-seed=NUMBER --hypothesis-show-statistics
"""
