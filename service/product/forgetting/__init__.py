"""Forgetting: removal of rows from models and statistics."""
