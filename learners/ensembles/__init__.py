"""Ensembles of selective networks: random cuts, discriminative weights, a boosted correction."""
