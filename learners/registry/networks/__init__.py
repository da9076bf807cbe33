"""Inference in networks: interventions, averages over graphs, and sampling where exact sums are too large."""
