"""Sum-product networks: circuits, streaming learning, exact queries."""
