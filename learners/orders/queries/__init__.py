"""Questions to a posterior over structures."""
