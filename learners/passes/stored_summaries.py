"""Conversion of column summaries to and from a table."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from learners.schema.category_counts import ValueTally
from learners.schema.discretise import Histogram
from learners.schema.nominal_forms import canonical_nominal_values
from learners.schema.schema import Value
from learners.schema.schema_inference import Column, list_column_item, value_count_structs

_PAIR = pa.struct([("text", pa.string()), ("number", pa.int64()), ("bool", pa.bool_()), ("count", pa.int64())])
_TABLE = pa.schema(
    {
        "name": pa.string(), "kind": pa.string(), "arrow_type": pa.string(), "n": pa.int64(), "is_overfull": pa.bool_(),
        "values": pa.list_(_PAIR), "keys": pa.list_(pa.int64()), "counts": pa.list_(pa.int64()), "level": pa.int64(),
        "types": pa.list_(_PAIR),
    }
)  # fmt: skip


def summaries_table(
    target: str | None, n_rows: int, class_counts: Mapping[Value, int], found: Mapping[str, Column]
) -> pa.Table:
    """Return a table with one row per column, the target first."""
    classes = value_count_structs(class_counts, class_counts)
    rows: list[dict[str, object]] = [{"name": target, "kind": "target", "values": classes, "n": n_rows}]
    for name, column in found.items():
        rows.append(
            {
                "name": name,
                "kind": column.kind,
                "arrow_type": column.arrow_type,
                "n": column.n_missing,
                "is_overfull": column.is_overfull,
                "values": value_count_structs(column.counts, sorted(column.counts)),
                "keys": column.histogram.keys,
                "counts": column.histogram.counts.ravel(),
                "level": column.histogram.level,
                "types": None if column.types is None else _structs_of_types(column.types),
            }
        )
    return pa.Table.from_pylist(rows, schema=_TABLE)


def read_summaries_table(table: pa.Table) -> tuple[int, dict[Value, int], dict[str, Column]]:
    """Return the number of rows, rows per class, and columns from the output of `summaries_table`."""
    n_rows, class_counts, found = 0, dict[Value, int](), dict[str, Column]()
    numbers = {name: table[name].combine_chunks() for name in ("keys", "counts")}
    for i, row in enumerate(table.drop_columns(list(numbers)).to_pylist()):
        values = _counts_of_structs(row["values"])
        if row["kind"] == "target":
            n_rows, class_counts = row["n"], values
            continue
        keys, counts = (list_column_item(column, i) for column in numbers.values())
        if row["kind"] == "nominal":  # times of earlier releases
            values = dict(zip(canonical_nominal_values([*values], row["arrow_type"]), values.values(), strict=True))
        histogram = Histogram(keys, counts.reshape(keys.size, counts.size // max(1, keys.size)), row["level"])
        tally = ValueTally(values, row["is_overfull"])
        types = row.get("types")  # which earlier releases have not stored
        found[row["name"]] = Column(
            row["arrow_type"],
            row["kind"],
            row["n"],
            tally,
            histogram,
            types=None if types is None else {str(name): n for name, n in _counts_of_structs(types).items()},
        )
    return n_rows, class_counts, found


def _counts_of_structs(structs: list[dict[str, Value | int | None]]) -> dict[Value, int]:
    return {next(p[k] for k in ("text", "number", "bool") if p[k] is not None): p["count"] for p in structs}  # type: ignore[misc]


def _structs_of_types(types: Mapping[str, int]) -> list[dict[str, object]]:
    return [{"text": name, "count": types[name]} for name in sorted(types)]
