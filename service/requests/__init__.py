"""What can be asked of the product, and what is said where it cannot be answered."""
