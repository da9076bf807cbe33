"""Scores of families, candidate parents and edge constraints."""
