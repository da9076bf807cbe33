"""Posteriors over circuits."""
