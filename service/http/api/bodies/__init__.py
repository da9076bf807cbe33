"""Bodies of requests: limits, formats, options."""
