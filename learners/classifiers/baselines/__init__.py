"""Baselines that fewpass is compared with and also serves: gradient boosted trees."""
