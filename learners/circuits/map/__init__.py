"""MAP queries: the most probable values of query variables given evidence, with other variables summed out."""
