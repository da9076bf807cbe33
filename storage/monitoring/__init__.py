"""Monitoring records and files."""
