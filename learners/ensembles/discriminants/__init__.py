"""The Gaussian discriminants beside an ensemble's networks."""
