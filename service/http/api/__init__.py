"""The REST API: one module per resource, with its routes and its request and response shapes."""
