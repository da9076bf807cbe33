"""Conditions on rows in SQL, such as ``user_id = 7``: parsed, confined to the row itself, and evaluated by DuckDB."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Self, cast

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from storage import duckdb_files
from storage.errors import InvalidPredicate

# What depends on the row alone and gives the same answer every time; LIKE and arithmetic are functions to DuckDB.
_CLASSES = {"COLUMN_REF", "CONSTANT", "COMPARISON", "CONJUNCTION", "OPERATOR", "BETWEEN", "CAST", "TYPE", "FUNCTION"}
_FUNCTIONS = {
    "~~", "!~~", "~~*", "!~~*", "like_escape", "+", "-", "*", "/", "//", "%", "abs", "lower", "upper", "length",
    "starts_with", "ends_with", "contains", "substring", "trim", "year", "month", "day", "date_trunc", "coalesce",
}  # fmt: skip
_BEFORE = "SELECT ("


class RowPredicate:
    """A condition that a row fulfils or not; NULL means not.

    Parameters
    ----------
    text : str
        An SQL condition on columns: comparisons, AND, OR, NOT, IN, BETWEEN, LIKE, IS NULL, arithmetic, casts.

    Attributes
    ----------
    columns : tuple of str
        The columns that it names.

    Raises
    ------
    InvalidPredicate
        Saying what is not understood or not allowed.
    """

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        self._own = threading.local()
        names: dict[str, None] = {}
        for node in _expressions(_parsed(self.text)):
            kind = str(node["class"])
            if kind not in _CLASSES:
                raise InvalidPredicate(text, f"{kind.lower()} is not allowed: use conditions on columns of the row")
            if kind == "FUNCTION" and node["function_name"] not in _FUNCTIONS:
                raise InvalidPredicate(text, f"function {node['function_name']!r} is not allowed")
            if kind == "COLUMN_REF":
                column = cast("list[str]", node["column_names"])
                if len(column) > 1:
                    raise InvalidPredicate(text, f"{'.'.join(column)} is not a column; quote names with dots")
                names[column[0]] = None
        self.columns = tuple(names)
        if not self.columns:
            raise InvalidPredicate(text, "it names no column")

    def mask(self, rows: pa.RecordBatch) -> NDArray[np.bool_]:
        """(n_rows,) bool: which rows fulfil the condition.

        Raises
        ------
        InvalidPredicate
            If a column is missing, or types do not allow the comparison.
        """
        connection = self._connection()
        table = pa.Table.from_batches([rows])
        try:
            relation = connection.from_arrow(table).project(f"({self.text}) AS is_true")
            if str(relation.types[0]) != "BOOLEAN":
                raise InvalidPredicate(self.text, f"it gives {relation.types[0]}, not true or false")
            found = relation.to_arrow_table().column(0)
        except duckdb.Error as error:
            raise InvalidPredicate(self.text, " ".join(str(error).split())[:300]) from error
        return np.asarray(found.fill_null(False).to_numpy(), bool)

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        """To a process of a cluster it is its text: connections stay where they are."""
        return type(self), (self.text,)

    def _connection(self) -> duckdb.DuckDBPyConnection:
        # A connection serves one thread at a time; passes have several.
        if not hasattr(self._own, "connection"):
            self._own.connection = duckdb_files.in_memory()
        connection: duckdb.DuckDBPyConnection = self._own.connection
        return connection


def _parsed(text: str) -> object:
    with duckdb_files.in_memory() as connection:
        ((document,),) = connection.execute("SELECT json_serialize_sql(?)", [f"{_BEFORE}{text}) FROM rows"]).fetchall()
    parsed = json.loads(document)
    if parsed["error"]:
        raise InvalidPredicate(text, _reason(text, parsed))
    node = parsed["statements"][0]["node"] if len(parsed["statements"]) == 1 else {}
    plain = node.get("type") == "SELECT_NODE" and len(node.get("select_list", ())) == 1
    from_rows = plain and node["from_table"].get("table_name") == "rows" and node["where_clause"] is None
    if not from_rows or node["modifiers"] or node["group_expressions"] or node["having"] or node["qualify"]:
        raise InvalidPredicate(text, "it is more than one condition")
    return node["select_list"][0]


def _reason(text: str, parsed: dict[str, object]) -> str:
    """Why a text is no condition, without naming what stands around it here."""
    reason = str(parsed.get("error_message", "it is not an SQL condition"))
    if "Only SELECT" in reason:
        return "it is more than one condition"
    position = str(parsed.get("position", ""))
    is_behind = position.isdigit() and int(position) >= len((_BEFORE + text).encode())
    return "it ends too early, or closes a parenthesis too many" if is_behind else reason


def _expressions(node: object) -> Iterator[dict[str, object]]:
    """All expressions in a parsed one."""
    if isinstance(node, dict):
        if "class" in node:
            yield node
        for child in node.values():
            yield from _expressions(child)
    elif isinstance(node, list):
        for child in node:
            yield from _expressions(child)
