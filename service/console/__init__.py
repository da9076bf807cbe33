"""The pages: templates, static files, one module per screen. They ask the product and compute nothing."""
