"""Jobs as they are submitted and checked."""
