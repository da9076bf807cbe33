"""Posteriors over network structures: order-modular distributions, exactly where memory allows."""
