"""From a record to an answer."""
