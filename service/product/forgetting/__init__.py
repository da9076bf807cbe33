"""Rows withdrawn from models and statistics."""
