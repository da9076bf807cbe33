"""Submission of jobs, and checks before it."""
