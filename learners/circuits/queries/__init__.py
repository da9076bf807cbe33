"""Exact answers of circuits: probabilities, marginals, moments, samples, imputation."""
