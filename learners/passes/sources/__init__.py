"""Sources of rows: files, formats, file systems."""
