"""Questions to models, row by row and file by file."""
