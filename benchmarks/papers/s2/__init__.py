"""S2: Zhao, Gordon (2017), Linear time computation of moments in sum-product networks."""
