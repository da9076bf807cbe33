"""Serving: from a record to an answer."""
