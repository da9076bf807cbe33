"""Posteriors over network structures: order-modular distributions, exact where memory allows."""
