"""Lake tables: a log says which files hold the rows of a snapshot."""
