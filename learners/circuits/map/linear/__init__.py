"""Reductions of a circuit by the query, and copies of circuits."""
