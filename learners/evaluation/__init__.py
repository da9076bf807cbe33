"""Evaluation of learners: cross-validation, comparison, metrics.

>>> from learners.evaluation.comparison import compare
>>> from learners.evaluation.crossvalidation import cross_validate
>>> outcomes = cross_validate(["data/"], ["nb", "kdb:k=3", "random-forest"], log="outcomes.jsonl")
>>> compare(outcomes).versus("rmse", "kdb:k=3", "nb").record
"""
