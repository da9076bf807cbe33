"""The HTTP server: the application, its access control and its routes."""
