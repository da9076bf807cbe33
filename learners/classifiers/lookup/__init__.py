"""Compiled lookup tables of a network."""
