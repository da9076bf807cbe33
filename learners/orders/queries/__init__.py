"""Queries to a posterior over structures."""
