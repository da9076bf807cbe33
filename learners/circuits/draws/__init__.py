"""Many circuits of one structure, evaluated together: the draws of a posterior."""
