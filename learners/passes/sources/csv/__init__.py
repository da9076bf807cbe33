"""CSV tables: parsing of lines and inference of column types."""
