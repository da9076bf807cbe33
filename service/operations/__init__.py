"""Operator tools beside serving: backup, doctor, bench, demo, precompile."""
