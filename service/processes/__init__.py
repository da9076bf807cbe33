"""Processes: serving processes, job workers, and their supervisor."""
