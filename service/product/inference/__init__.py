"""Inference: queries, and scoring of rows and files."""
