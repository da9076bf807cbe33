"""Probabilities of context trees: m-estimates, back-off, hierarchical Dirichlet processes."""
