"""Many circuits of one structure, evaluated together: samples of a posterior."""
