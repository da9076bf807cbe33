"""What is served, counted as training counts: statistics that add and subtract, two-sample tests of them, and causes."""
