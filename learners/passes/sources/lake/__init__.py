"""Lake tables: a log lists the files with the rows of a snapshot."""
