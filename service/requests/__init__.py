"""Request shapes, and the problems with which requests are refused."""
