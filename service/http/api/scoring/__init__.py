"""Predictions, explanations and queries."""
