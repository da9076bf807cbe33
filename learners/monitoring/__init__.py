"""Monitoring: counts of served rows that add and subtract, two-sample tests on them, and causes of drift."""
