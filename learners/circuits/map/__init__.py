"""Most probable values of query variables given evidence, other variables summed out (MAP)."""
