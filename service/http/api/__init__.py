"""REST: one file per resource, routes and shapes together."""
