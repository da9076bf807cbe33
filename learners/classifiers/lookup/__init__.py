"""A network as look-up tables that answer."""
