"""Counts of attributes given their parents and the class."""
