"""Values that a user can choose for a column: the label of each code, and a value with that code."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from learners.schema.schema import Attribute, Value


def attribute_value_choices(attribute: Attribute) -> list[tuple[str, Value | float | None]]:
    """Return the choices for a column: the label of each code, and a value with that code."""
    values: Sequence[Value | float] = attribute.values if attribute.kind == "nominal" else _representatives(attribute)
    # A last label may be that of rare values, which no value stands for.
    return list(zip(attribute.unique_labels(), [*[None] * attribute.first_code, *values], strict=False))


def _representatives(attribute: Attribute) -> list[str | float]:
    """Return a number in each interval that training saw, short if possible; interval j holds cuts[j - 1] < x <=
    cuts[j].
    """
    cuts, cycle = attribute.cuts, attribute.cycle
    if cycle is not None:
        middles = [cycle.start + cycle.step * (j + 0.5) for j in range(len(cycle.labels))]
        return [attribute.number_in_words(middle) for middle in middles]
    if not cuts:
        return [attribute.number_in_words(0.0)]
    width = (cuts[-1] - cuts[0]) / max(1, len(cuts) - 1) or abs(cuts[0]) or 1.0
    numbers = [cuts[0], *itertools.starmap(_short_between, itertools.pairwise(cuts))]
    greatest = attribute.quantiles[-1] if attribute.quantiles else -math.inf
    numbers.append(_short_between(cuts[-1], greatest if greatest > cuts[-1] else cuts[-1] + 2 * width))
    return [attribute.number_in_words(number) for number in numbers]


def _short_between(low: float, high: float) -> float:
    """Return the midpoint of an interval, rounded to as few digits as keep it inside."""
    middle = low / 2 + high / 2
    for n_digits in range(1, 18):
        number = float(f"{middle:.{n_digits}g}")
        if low < number < high:
            return number
    return high
