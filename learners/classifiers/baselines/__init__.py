"""What fewpass is compared with, and serves beside its own models: gradient boosted trees."""
