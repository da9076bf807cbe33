"""Parse evidence of every kind about the columns into single values and likelihoods of codes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np

from learners.circuits.errors import InvalidEvidence
from learners.circuits.evaluation.reweighted import NOTHING, Likelihoods
from learners.circuits.queries.column_values import is_binned_variable
from learners.circuits.variables import Columns
from learners.errors import LearnerError
from learners.kernels.arrays import Floats, Mask
from learners.models.evidence import Evidence, Known, Likely, NoneOf, Range, RawValue
from learners.models.query import InferenceQuery, Query, Surprise
from learners.schema.encoding.json_records import json_number_reader
from learners.schema.times_and_durations import DICTIONARY

DAY_S = 86_400.0
MOST_ENDS = 12
# Types of single values, quick to look up, and of what is not one value.
SINGLE = frozenset((str, int, float, bool, type(None)))
SEVERAL = (Range, NoneOf, tuple, list, set, frozenset)


class Read(NamedTuple):
    """Parsed evidence of a query: single values by column, and likelihoods of other variables."""

    values: Mapping[str, object]
    likelihoods: Likelihoods

    @property
    def key(self) -> tuple[object, ...]:
        """Key that is equal for queries with the same likelihoods."""
        if not self.likelihoods:
            return ()
        weights = sorted(self.likelihoods.log_weights.items())
        return (*((v, logs.tobytes()) for v, logs in weights), *sorted(self.likelihoods.ranges.items()))


def settled_columns(*evidence: Evidence) -> set[str]:
    """Return the columns to which evidence or interventions give a single value; these cannot be queried."""
    return {
        name
        for given in evidence
        for name, value in given.items()
        if value is not None and not isinstance(value, SEVERAL)
    }


def read_evidence(columns: Columns, query: Query) -> Read:
    """Parse the evidence of a query by the kinds of its columns; interventions count as evidence.

    Raises UnknownColumn, InvalidEvidence, SchemaError, naming the column, and the value at fault.
    """
    if isinstance(query, Surprise):
        several = next((name for name, value in query.evidence.items() if isinstance(value, SEVERAL)), None)
        if several is not None:
            raise InvalidEvidence(
                f"Column {several!r} has more than one value: surprise ranks single values among drawn rows. Ask for a marginal."
            )
        return Read(query.evidence, NOTHING)
    return read_evidence_likelihoods(columns, evidence_with_interventions(query), query.likely)


def evidence_with_interventions(query: InferenceQuery) -> Evidence:
    """Return the evidence of a query, including the values of its interventions. Raises InvalidEvidence."""
    for name, value in query.do.items():
        if value is None or isinstance(value, SEVERAL):
            raise InvalidEvidence(f"Column {name!r} must be set to a single value, not {value!r}.")
        if query.evidence.get(name) is not None:
            raise InvalidEvidence(f"Column {name!r} is both set by do and given as evidence: keep one of the two.")
    return {**query.evidence, **query.do} if query.do else query.evidence


def read_evidence_likelihoods(columns: Columns, evidence: Evidence, likely: Likely) -> Read:
    """Parse the two parts of evidence as `read_evidence` does."""
    if not likely and SINGLE.issuperset(map(type, evidence.values())):
        return Read(evidence, NOTHING)
    several = {name: value for name, value in evidence.items() if isinstance(value, SEVERAL)}
    log_weights: dict[int, Floats] = {}
    ranges: dict[int, tuple[float, float]] = {}
    for name, value in several.items():
        (v,) = columns.variables([name])
        if columns.n_values[v]:
            with np.errstate(divide="ignore"):
                log_weights[v] = np.log(_is_possible(columns, v, value).astype(np.float64))
        else:
            if not isinstance(value, Range):
                raise InvalidEvidence(
                    f"Column {name!r} is modelled by its numbers: give one number or a range, not a set of values or an exclusion."
                )
            ranges[v] = _rounded_range(columns, v, *_ends(columns, v, value))
    for name, weights in likely.items():
        (v,) = columns.variables([name])
        if evidence.get(name) is not None:
            raise InvalidEvidence(f"Column {name!r} is in both evidence and likely: keep one of the two.")
        with np.errstate(divide="ignore"):
            log_weights[v] = np.log(_weights(columns, v, weights))
    values = {name: value for name, value in evidence.items() if name not in several}
    return Read(values, Likelihoods(log_weights, ranges))


def _is_possible(columns: Columns, v: int, value: Known) -> Mask:
    """Return the codes that evidence with several values allows, (n_values,) bool."""
    name = columns.names[v]
    if isinstance(value, Range):
        possible = _in_intervals(columns, v, value) if is_binned_variable(columns, v) else _in_range(columns, v, value)
    else:
        is_excluded = isinstance(value, NoneOf)
        values = value.none_of if isinstance(value, NoneOf) else cast("Iterable[RawValue]", value)
        possible = np.full(columns.n_values[v], is_excluded)
        codes = _codes(columns, v, values)
        if is_excluded and is_binned_variable(columns, v):
            _check_excludes_intervals(columns, v, list(values), codes)
        possible[codes] = not is_excluded
    if not possible.any():
        raise InvalidEvidence(f"Column {name!r} has no value left: the evidence excludes all values seen in training.")
    return possible


def _codes(columns: Columns, v: int, values: Iterable[RawValue]) -> list[int]:
    values = list(values)
    name = columns.names[v]
    if not values:
        raise InvalidEvidence(f"Column {name!r} has an empty set as evidence: name a value, or leave the column out.")
    codes = []
    for value in values:
        code = columns.code(v, value)
        if math.isnan(code):
            raise InvalidEvidence(
                f"Column {name!r} has null among its values: use the label of missing values instead, if training saw any."
            )
        codes.append(int(code))
    return codes


def _check_excludes_intervals(columns: Columns, v: int, values: Sequence[RawValue], codes: Sequence[int]) -> None:
    """Refuse to exclude one number of an interval that holds others too (InvalidEvidence)."""
    attribute, labels = columns.schema.attributes[v], columns.labels(v)
    edges = (-math.inf, *attribute.cuts, math.inf)
    own = attribute.first_code - int(columns.offsets[v])
    step = 0.0 if attribute.part is not None else _step(attribute.arrow_type)
    for value, code in zip(values, codes, strict=True):
        low, high = edges[code - own], edges[code - own + 1] if code >= own else -math.inf
        is_alone = step > 0 and math.isfinite(low + high) and math.floor(high / step) - math.floor(low / step) == 1
        if code >= own and value not in labels and not is_alone:
            raise InvalidEvidence(
                f"Column {columns.names[v]!r} is cut into intervals, and {value!r} lies in {labels[code]}, which holds other numbers too: "
                f"exclude the whole interval, {labels[code]!r}, or give a range."
            )


def _weights(columns: Columns, v: int, weights: Mapping[str, float]) -> Floats:
    name = columns.names[v]
    if not columns.n_values[v]:
        raise InvalidEvidence(
            f"Column {name!r} is modelled by its numbers, which take no weights: give a number or a range."
        )
    if not isinstance(weights, Mapping) or not weights:
        raise InvalidEvidence(f"Column {name!r} needs weights by value in likely, such as {{'a': 0.8, 'b': 0.2}}.")
    vector = np.zeros(columns.n_values[v])
    named: dict[int, object] = {}
    for value, weight in weights.items():
        (code,) = _codes(columns, v, [_of_key(columns, v, value)])
        if code in named:
            raise InvalidEvidence(
                f"Column {name!r} has two weights for one value, because {named[code]!r} and {value!r} are the same to the model: give one of them."
            )
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < math.inf:
            raise InvalidEvidence(
                f"Column {name!r} has the weight {weight!r} for {value!r}: weights must be zero or more."
            )
        named[code], vector[code] = value, weight
    if not vector.any():
        raise InvalidEvidence(f"Column {name!r} has weight 0 for every value: give at least one a positive weight.")
    return vector


def _of_key(columns: Columns, v: int, value: RawValue) -> RawValue:
    """Convert the text key of a JSON object to a number if the column is cut into intervals."""
    if isinstance(value, str) and value not in columns.labels(v) and is_binned_variable(columns, v):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _ends(columns: Columns, v: int, given: Range) -> tuple[float, float]:
    """Return the ends of a range as numbers, infinite if absent."""
    name = columns.names[v]
    attribute = None if v == columns.class_variable else columns.schema.attributes[v]
    number = float if attribute is None or attribute.kind == "nominal" else json_number_reader(attribute)
    if given.low is None and given.high is None:
        raise InvalidEvidence(f"Column {name!r} has a range without ends: set one, or leave the column out.")
    try:
        low = -math.inf if given.low is None else number(given.low)
        high = math.inf if given.high is None else number(given.high)
    except ValueError as error:
        if isinstance(error, LearnerError):  # which names the column
            raise
        raise InvalidEvidence(
            f"Column {name!r} has a range whose ends are not numbers: use a set of values instead."
        ) from error
    if not low <= high:  # also of NaN
        raise InvalidEvidence(
            f"Column {name!r} has an empty range, from {given.low!r} to {given.high!r}: swap the ends."
        )
    return low, high


def _rounded_range(columns: Columns, v: int, low: float, high: float) -> tuple[float, float]:
    """Widen the range of an integer column to all numbers that round into it, as imputed values are rounded; leave others."""
    if not columns.schema.attributes[v].arrow_type.startswith(("int", "uint")):
        return low, high
    ends = math.ceil(low) - 0.5 if math.isfinite(low) else low, math.floor(high) + 0.5 if math.isfinite(high) else high
    if ends[0] >= ends[1]:
        raise InvalidEvidence(f"Column {columns.names[v]!r} has whole numbers, and none lies from {low:g} to {high:g}.")
    return ends


def _in_range(columns: Columns, v: int, given: Range) -> Mask:
    """Return which values of a nominal column are numbers in a range, (n_values,) bool."""
    name = columns.names[v]
    values = [columns.value(v, code) for code in range(columns.n_values[v])]
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if not numbers:
        raise InvalidEvidence(
            f"Column {name!r} does not have numbers as values, so it cannot take a range: use a set of values instead."
        )
    if v != columns.class_variable and columns.schema.attributes[v].n_folded:
        raise InvalidEvidence(
            f"Column {name!r} has rare values that share one code, so the model cannot decide which of them are in a range: use a set of "
            "values instead."
        )
    low, high = _ends(columns, v, given)
    return np.array(
        [isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high for value in values]
    )


def _in_intervals(columns: Columns, v: int, given: Range) -> Mask:
    """Return the intervals that form a range whose ends are cut points, (n_values,) bool."""
    attribute = columns.schema.attributes[v]
    low, high = _ends(columns, v, given)
    own = attribute.first_code - int(columns.offsets[v])
    first, end = 0, len(attribute.cuts) + 1
    if low > -math.inf:
        first = _place(columns, v, low, given.low, is_low=True) + 1
    if high < math.inf:
        end = _place(columns, v, high, given.high, is_low=False) + 1
    if first == end:
        raise InvalidEvidence(
            f"Column {columns.names[v]!r} is cut into intervals, and none lies between {given.low!r} and {given.high!r}: give a single "
            "number instead."
        )
    possible = np.zeros(columns.n_values[v], np.bool_)
    possible[own + first : own + end] = True
    return possible


def _place(columns: Columns, v: int, number: float, given: RawValue, *, is_low: bool) -> int:
    """Return the position of the cut point at which a range ends.

    A cut point belongs to the interval below it. So a range of integers, or dates, starts at the first one above
    the cut point; a range of other numbers starts at the cut point itself, which it excludes. Raises
    InvalidEvidence, with nearby cut points, without one.
    """
    attribute = columns.schema.attributes[v]
    name, cuts = columns.names[v], np.array(attribute.cuts)
    if not cuts.size:
        raise InvalidEvidence(
            f"Column {name!r} is a single interval in the model, so it cannot take a range: leave it out."
        )
    step = _step(attribute.arrow_type)
    if step:
        ends = (np.floor(cuts / step) + is_low) * step
        words = [str(attribute.number_in_words(int(end) if step == 1.0 else float(end))) for end in ends.tolist()]
    else:
        ends, words = cuts, attribute.cuts_in_words()
    # The labels tell cuts with as many digits as keep them apart.
    places = np.flatnonzero((ends == number) | np.array([word in (str(given), f"{number:g}") for word in words]))
    if places.size:
        return int(places[0])
    near = np.sort(np.argsort(np.abs(ends - number), kind="stable")[:MOST_ENDS])
    options = ", ".join(words[place] for place in near)
    which = "start" if is_low else "end"
    options += ", …" if len(words) > MOST_ENDS else ""
    raise InvalidEvidence(
        f"Column {name!r} is cut into intervals, so a range cannot {which} at {given!r}, only at {options}. Use one of these, leave this "
        "end of the range open, or learn a circuit (learner spn) with leaves=gaussian, "
        "which takes any range."
    )


def _step(arrow_type: str) -> float:
    """Return the spacing of a column's numbers: 1 for integers, a day for dates; 0 for others."""
    kind = arrow_type.removeprefix(DICTIONARY)
    if kind.startswith(("int", "uint")):
        return 1.0
    return DAY_S if kind.startswith("date") else 0.0
