"""Durable jobs: a thin layer over DBOS, and the worker process that runs them."""
