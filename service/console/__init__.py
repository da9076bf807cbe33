"""The pages: templates, static files, screens. They ask the product and compute nothing."""
