"""Sampling the weights and leaves of a circuit whose structure is given."""
