"""The console's pages: templates, static files and screens. They call the product and compute nothing."""
