"""Family scores, candidate parents and edge constraints."""
