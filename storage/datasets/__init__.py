"""Datasets, their statistics, and rows that must not be learned from."""
