"""Screens by topic: each builds a page model from the product's answers."""
