"""Networks taken apart: interventions, averages over graphs, and samples where sums are too large."""
