"""Monitoring of served models."""
