"""Sum-product networks: circuits, learning from the stream, exact queries."""
