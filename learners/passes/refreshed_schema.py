"""Schema of a refresh: keep the last training's cut points, or choose them as training from scratch would."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from learners.errors import UnknownColumn
from learners.kernels.arrays import Integers
from learners.passes.column_summaries import ColumnSummaries
from learners.passes.learner import Passes, Work
from learners.schema import Attribute, Kept, Schema
from learners.schema.discretise import Histogram, floats_from_ordered_keys
from learners.schema.schema_inference import Column

# "auto" keeps cut points while they lose no more than this share of the left-out loss of any column, of what its intervals
# tell where there is no class, and of the rows by folding their values.
MOST_LOST = 0.01
SHOWN = 5


def kept_schema(given: Schema | Kept | None) -> Schema | None:
    """Return the schema whose cut points are kept in any case, so that only domains are counted; else None."""
    return given.schema if isinstance(given, Kept) and given.cuts == "kept" else None


def refreshed_schema(given: Kept | None, summaries: ColumnSummaries, fresh: Callable[[], Schema]) -> Passes[Schema]:
    """Determine the schema of a training that may follow an earlier one.

    `given`: the schema of that one, and what becomes of its cut points.
    `summaries`: of all rows; of the domains alone if cut points are kept in any case.
    `fresh`: the schema that training from scratch infers from the summaries.
    Raises UnknownColumn if attributes may be kept and the table has lost one.
    """
    if given is None:
        return fresh()
    if given.cuts == "kept":
        return summaries.build_schema()
    new = fresh()
    if given.cuts == "auto":
        for name in (attribute.name for attribute in given.schema.attributes):
            if name not in summaries.found:
                raise UnknownColumn(name, list(summaries.found))
        if not costly_columns(given.schema, new, summaries):
            domains = summaries.domains_of(given.schema).build_schema()
            quantiles = {attribute.name: attribute.quantiles for attribute in new.attributes}
            attributes = [replace(own, quantiles=quantiles.get(own.name, own.quantiles)) for own in domains.attributes]
            return replace(domains, attributes=tuple(attributes))
    if moved := moved_columns(given.schema, new):
        yield Work(price_of_moved_columns(moved, summaries.n_rows), lambda *_: None)
    return new


def price_of_moved_columns(moved: Sequence[str], n_rows: int) -> str:
    """Describe the cost of changed cut points."""
    return f"cut points moved: counting {_listed(moved)} again in {n_rows:,} rows"


def moved_cut_point_warnings(known: Kept, new: Schema) -> list[str]:
    """Return warnings about a refresh whose cut points differ from the last training's."""
    moved = moved_columns(known.schema, new)
    if not moved:
        return []
    why = (
        f"keeping them lost more than {MOST_LOST:.0%} of a column's left-out log loss"
        if known.cuts == "auto"
        else "fresh"
    )
    return [f"Cut points of {_listed(moved)} moved since the last training ({why}): these columns were counted again."]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:SHOWN])) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def moved_columns(old: Schema, new: Schema) -> list[str]:
    """Return the attributes whose cut points differ, or that occur in only one of two schemas."""
    before, after = (
        {own.name: (own.kind, own.cuts, own.groupings, own.part) for own in s.attributes} for s in (old, new)
    )
    return sorted(name for name in before | after if before.get(name) != after.get(name))


def costly_columns(old: Schema, new: Schema, summaries: ColumnSummaries) -> list[str]:
    """Return the columns for which the old schema loses more than `MOST_LOST` against the new one.

    The loss of a numeric column is the leave-one-out log loss of the class given its interval, compared with the
    new cut points over all rows; without a class, the entropy of its intervals. For a nominal column, it is the
    share of rows whose values are folded into one code. Any other difference between the schemas counts as
    costly, because its cost is unknown.
    """
    before, after = ({own.name: own for own in schema.attributes} for schema in (old, new))
    costly = []
    for name in sorted(before.keys() | after.keys()):
        column, ours, theirs = summaries.found[name], before.get(name), after.get(name)
        kinds = {own.kind for own in (ours, theirs) if own is not None}
        if kinds == {"numeric"} and column.kind == "numeric":
            lost = _lost_by_cuts(column.histogram, ours, theirs, has_classes=new.target is not None)
        elif kinds == {"nominal"} and ours is not None and theirs is not None:
            lost = (_folded(column, ours) - _folded(column, theirs)) / max(1, summaries.n_rows)
        else:
            lost = np.inf
        if lost > MOST_LOST:
            costly.append(name)
    return costly


def _lost_by_cuts(
    histogram: Histogram, ours: Attribute | None, theirs: Attribute | None, *, has_classes: bool
) -> float:
    tables = [_by_interval(histogram, own) for own in (ours, theirs)]
    if has_classes:
        kept, fresh = map(leave_one_out_loss, tables)
        return (kept - fresh) / fresh if fresh else kept
    kept, fresh = map(_entropy, tables)
    return (fresh - kept) / fresh if fresh else 0.0


def _by_interval(histogram: Histogram, attribute: Attribute | None) -> Integers:
    """Count the rows of each interval by class, (n_intervals, n_classes) int64; interval j holds cuts[j - 1] < x <=
    cuts[j].
    """
    numbers, cuts = floats_from_ordered_keys(histogram.keys << histogram.level), attribute.cuts if attribute else ()
    if attribute is not None and attribute.cycle is not None:
        numbers = attribute.cycle.phases(numbers)
    place = np.searchsorted(np.asarray(cuts), numbers, side="left")
    table = np.zeros((len(cuts) + 1, histogram.counts.shape[1]), np.int64)
    np.add.at(table, place, histogram.counts)
    return table


def leave_one_out_loss(table: Integers) -> float:
    """Return the mean leave-one-out log loss of the class given the interval, with one prior row per interval.

    `table`: (n_intervals, n_classes) int64: rows.
    Returns nats; 0 without rows.
    """
    rows = table.sum(axis=1, keepdims=True)
    left_out = np.maximum(table - 1 + 1 / max(1, table.shape[1]), np.finfo(np.float64).tiny)
    total = (table * (np.log(np.maximum(rows, 1)) - np.log(left_out)))[table > 0].sum()
    return float(total) / max(1, int(rows.sum()))


def _entropy(table: Integers) -> float:
    shares = table.sum(axis=1) / max(1, int(table.sum()))
    return float(-(shares[shares > 0] * np.log(shares[shares > 0])).sum())


def _folded(column: Column, attribute: Attribute) -> int:
    """Count the rows whose value has no code and is folded into the others."""
    known = set(attribute.values)
    return sum(n for value, n in column.counts.items() if value not in known) if attribute.n_folded else 0
