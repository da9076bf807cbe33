"""How often each value occurs, row by row."""

from collections import Counter


def numbers_by_class(x, y):
    """(number, class) -> rows, without NaN; the two zeros are one."""
    return Counter((number + 0.0, int(k)) for number, k in zip(x, y, strict=True) if number == number)


def values(rows):
    """value -> rows, and how many rows have none."""
    counts = Counter(value for value in rows if value is not None)
    return counts, len(rows) - counts.total()
