"""Exact queries to circuits: probabilities, marginals, moments, samples, imputation."""
