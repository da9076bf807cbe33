"""S4: Yokoi, Sato (2024), Top-down Bayesian posterior sampling for sum-product networks."""
