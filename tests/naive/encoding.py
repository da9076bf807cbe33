"""The codes of raw Python values, from the words of `Attribute`'s docstring."""

import math


def code_of(attribute, value):
    """Missing first (where it occurs), then the values or the intervals, then the folded rare values, then unseen."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return 0 if attribute.has_missing else attribute.n_values
    first = 1 if attribute.has_missing else 0
    if attribute.kind == "numeric":
        return first + sum(1 for cut in attribute.cuts if cut < value)
    for position, known in enumerate(attribute.values):
        if known == value:
            return first + position
    return first + len(attribute.values)  # the folded ones, or the unseen code if there are none


def codes_of(columns, schema):
    """Codes of Python values, by attribute and row; absent columns are unseen."""
    n_rows = len(next(iter(columns.values())))
    return [
        [code_of(attribute, value) for value in columns.get(attribute.name, [])] or [attribute.n_values] * n_rows
        for attribute in schema.attributes
    ]
