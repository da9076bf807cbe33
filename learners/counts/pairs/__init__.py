"""Counts of pairs of attributes by class."""
