"""Encode the columns of a table to the codes of a schema in SQL."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from learners.errors import LearnerError
from learners.registry.sql.dialects import MOST_JOINS, Dialect, Query
from learners.schema import Attribute, Schema
from learners.schema.time_parts import Cycle
from learners.schema.times_and_durations import DICTIONARY, is_date_or_timestamp


class UnsupportedColumn(LearnerError, ValueError):
    """Raised if no portable SQL reads a column's values as the model does."""

    def __init__(self, column: str, arrow_type: str, kind: str) -> None:
        super().__init__(
            f"Column {column!r} had type {arrow_type} in training, read as {kind}, which differs between databases. Convert it to text "
            "or numbers and train again."
        )
        self.column = column


def add_encoding_step(
    query: Query, schema: Schema, used: Sequence[int], source: str, kept: Sequence[str], absent: Collection[str]
) -> str:
    """Add the step with columns c0, c1, …: codes of the attributes in use, by their positions in the schema.

    `source`: quoted name of the table.
    `kept`: what else to select from it, each with a new name.
    `absent`: columns that the table does not have.
    Raises UnsupportedColumn.
    """
    there = [i for i in used if schema.attributes[i].name not in absent]
    raw = [f"{_raw(schema.attributes[i], query.dialect)} AS x{i}" for i in there]
    source = query.add("source", [*kept, *raw] or ["1 AS nothing"], f"{source} AS t")
    names = [column.rpartition(" AS ")[2] for column in kept]
    pending = [i for i in there if schema.attributes[i].kind == "nominal" and schema.attributes[i].values]
    coded: list[str] = []
    while pending:
        block, pending = pending[:MOST_JOINS], pending[MOST_JOINS:]
        joins, codes = [], []
        for i in block:
            attribute = schema.attributes[i]
            joined = "text_value" if isinstance(attribute.values[0], str) else "whole_value"
            joins.append(
                f"LEFT JOIN {query.table('values')} AS v{i} ON v{i}.attribute = {i} AND v{i}.{joined} = s.x{i}"
            )
            codes.append(_code(attribute, f"s.x{i}", f"COALESCE(v{i}.code, {attribute.unseen_code})") + f" AS c{i}")
        left = [f"s.x{i}" for i in there if i not in block and f"c{i}" not in coded]
        carried = [f"s.{name}" for name in (*names, *coded)]
        source = query.add("named", [*carried, *left, *codes], f"{source} AS s\n    " + "\n    ".join(joins))
        coded += [f"c{i}" for i in block]
    rest = []
    for i in used:
        attribute = schema.attributes[i]
        if attribute.name in absent:
            rest.append(f"{attribute.absent_code} AS c{i}")
        elif attribute.kind == "numeric":
            cuts = list(map(query.dialect.number, attribute.cuts))
            rest.append(_code(attribute, f"x{i}", binary_search_sql(f"x{i}", cuts, attribute.first_code)) + f" AS c{i}")
        elif not attribute.values:
            rest.append(_code(attribute, f"x{i}", str(attribute.unseen_code)) + f" AS c{i}")
    return query.add("coded", [*names, *coded, *rest] or ["1 AS nothing"], source)


def value_encoding_rows(schema: Schema, used: Sequence[int], dialect: Dialect) -> list[str]:
    """Return the rows of the table of values: attribute, text, integer, code."""
    rows = []
    for i in used:
        attribute = schema.attributes[i]
        for place, value in enumerate(attribute.values):
            is_text = isinstance(value, str)
            text, whole = (dialect.literal(value), "NULL") if is_text else ("NULL", str(int(value)))
            rows.append(f"{i}, {text}, {whole}, {place + attribute.first_code}")
    return rows


def _code(attribute: Attribute, x: str, code: str) -> str:
    return f"CASE WHEN {x} IS NULL THEN {attribute.missing_code} ELSE {code} END"


def _raw(attribute: Attribute, dialect: Dialect) -> str:
    """Return the expression that compares a column: numbers as doubles, timestamps as seconds since 1970, booleans as
    integers, NaN as NULL.
    """
    column = "t." + dialect.identifier(attribute.name)
    arrow_type = attribute.arrow_type.removeprefix(DICTIONARY)
    if arrow_type.startswith(("time32", "time64", "duration")):
        raise UnsupportedColumn(attribute.name, attribute.arrow_type, attribute.kind)
    if arrow_type == "bool":  # PostgreSQL casts none to doubles or whole numbers of 64 bits
        column = f"CASE WHEN {column} THEN 1 WHEN NOT {column} THEN 0 END"
    if attribute.kind == "numeric":
        if is_date_or_timestamp(arrow_type):
            seconds = dialect.seconds.format(column)
            return seconds if attribute.cycle is None else _phase(attribute.cycle, seconds, dialect)
        return _without_nan(f"CAST({column} AS {dialect.real})", dialect)
    if is_date_or_timestamp(arrow_type):
        if not arrow_type.startswith("date32"):
            raise UnsupportedColumn(attribute.name, attribute.arrow_type, attribute.kind)
        return f"CAST({column} AS {dialect.text})"
    if arrow_type.startswith(("float", "double", "halffloat")):
        return _without_nan(f"CAST({column} AS {dialect.real})", dialect)
    return column


def _phase(cycle: Cycle, seconds: str, dialect: Dialect) -> str:
    """Seconds since the cycle began."""
    start, period = dialect.number(cycle.start), dialect.number(cycle.period)
    whole = dialect.floor.format(f"(({seconds} - {start}) / {period})")
    return f"({seconds} - {start} - {whole} * {period})"


def _without_nan(x: str, dialect: Dialect) -> str:
    return x if dialect.is_nan is None else f"CASE WHEN {dialect.is_nan.format(x)} THEN NULL ELSE {x} END"


def binary_search_sql(x: str, cuts: Sequence[str], first: int) -> str:
    """Return an expression for `first` plus the number of ascending cut points below a number, by binary search."""
    if not cuts:
        return str(first)
    middle = len(cuts) // 2
    below, above = (
        binary_search_sql(x, cuts[:middle], first),
        binary_search_sql(x, cuts[middle + 1 :], first + middle + 1),
    )
    return f"CASE WHEN {x} <= {cuts[middle]} THEN {below} ELSE {above} END"
