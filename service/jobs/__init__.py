"""Durable jobs: a thin face of DBOS, and the worker process that runs them."""
