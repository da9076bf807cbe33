"""Results of other programs, with their sources: see README.md."""

import csv
from pathlib import Path

HERE = Path(__file__).parent


def rows_of(name):
    """The lines of a file by the names of its columns."""
    with (HERE / name).open(newline="") as file:
        return list(csv.DictReader(file))
