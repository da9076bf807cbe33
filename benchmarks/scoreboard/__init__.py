"""One command that measures the whole: what a user runs, beside the boosting libraries, on tables as they are."""
