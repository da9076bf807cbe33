"""SkDB's selection of attributes and parents."""
