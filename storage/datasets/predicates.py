"""SQL conditions on rows, such as ``user_id = 7``: parsed, restricted to the row itself, and evaluated by DuckDB."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, cast

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from storage.errors import InvalidPredicate
from storage.files import duckdb_files

# What depends on the row alone and gives the same answer every time; LIKE and arithmetic are functions to DuckDB.
_CLASSES = {"COLUMN_REF", "CONSTANT", "COMPARISON", "CONJUNCTION", "OPERATOR", "BETWEEN", "CAST", "TYPE", "FUNCTION"}
_FUNCTIONS = {
    "~~", "!~~", "~~*", "!~~*", "like_escape", "+", "-", "*", "/", "//", "%", "abs", "lower", "upper", "length",
    "starts_with", "ends_with", "contains", "substring", "trim", "year", "month", "day", "date_trunc", "coalesce",
}  # fmt: skip
_BEFORE, _AFTER = "SELECT (\n", "\n) FROM rows"  # on lines of their own: a comment in a condition hides nothing of ours
_MAX_DEPTH = 100
_MOST_OPENED = 500  # parentheses: DuckDB's parser takes memory and time that grow with the square of those left open
_DEEPEST = 300  # of any condition: how deep Python itself reads depends on its version
_DIVISIONS = {"/", "//", "%"}


class RowPredicate:
    """An SQL condition on rows; NULL counts as no match, and so does a value with which it cannot be computed.

    `text` is an SQL condition on columns: comparisons, AND, OR, NOT, IN, BETWEEN, LIKE, IS NULL, arithmetic, casts.
    `is_new` refuses also what may fail on values of later files: rules of earlier releases may hold that. `columns` are
    those that it names. InvalidPredicate names the invalid or forbidden part.
    """

    def __init__(self, text: str, *, is_new: bool = False) -> None:
        self.text = text.strip()
        names: dict[str, None] = {}
        for node, depth in _expressions(_parsed(self.text)):
            if is_new:
                _check_total(text, node, depth)
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

    def equalities(self, *, all_of_it: bool = False) -> list[tuple[str, list[int | str]]]:
        """Return columns that must equal one of some whole numbers or texts wherever the condition is true.

        Alternatives (OR) count if each is such an equality, all of one column. With `all_of_it` only if the condition is one such equality, so that it can be computed for every row.
        """
        root = _parsed(self.text)
        parts = [root]
        if isinstance(root, dict) and root.get("type") == "CONJUNCTION_AND" and not all_of_it:
            parts = list(root["children"])
        if isinstance(root, dict) and root.get("type") == "CONJUNCTION_OR" and not all_of_it:
            alternatives = [_equality(part) for part in root["children"]]
            known = [each for each in alternatives if each is not None]
            if len(known) < len(alternatives) or len({column for column, _ in known}) > 1:
                return []
            return [(known[0][0], [value for _, values in known for value in values])]
        equalities = [_equality(part) for part in parts]
        return [equality for equality in equalities if equality is not None]

    def mask(self, rows: pa.RecordBatch | pa.Table, *, is_strict: bool = False) -> NDArray[np.bool_]:
        """Mask of the rows that match the condition, (n_rows,) bool.

        With `is_strict` a value with which it cannot be computed is an error, and not a row that does not fulfil it. Raises
        InvalidPredicate also if a column is missing, or types do not allow the comparison.
        """
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        # TRY: text in a column of numbers, 0 as a divisor, a sum too large. One such value in a file that comes next year
        # must not end every training from then on.
        result = f"{'' if is_strict else 'TRY'}(\n{self.text}\n) AS is_true"
        try:
            is_true = self._truth(table, result)
        except (duckdb.DataError, duckdb.InvalidInputException):
            try:
                self._truth(table.slice(0, 0), result)
            except duckdb.Error as error:
                raise InvalidPredicate(self.text, _duckdb_reason(error)) from error
            # The first message repeats a value, maybe of the person who is to be forgotten.
            columns = [f"{name} ({_type_name(table.schema.field(name).type)})" for name in self.columns]
            raise InvalidPredicate(
                self.text,
                f"it cannot be computed for some value of {', '.join(columns)}: write texts in quotes and numbers without",
            ) from None
        except duckdb.Error as error:
            raise InvalidPredicate(self.text, _duckdb_reason(error)) from error
        return np.asarray(is_true.fill_null(False).to_numpy(), bool)

    def _truth(self, table: pa.Table, result: str) -> pa.ChunkedArray:
        """Return whether the condition is true of each row, null where it is neither; `result` is its expression. Raises duckdb.Error."""
        with duckdb_files.isolated_duckdb() as connection:
            relation = connection.from_arrow(table).project(result)
            if str(relation.types[0]) != "BOOLEAN":
                raise InvalidPredicate(self.text, f"its result is {relation.types[0]}, not true or false")
            return relation.to_arrow_table().column(0)

    @classmethod
    def any_of(cls, predicates: Sequence[RowPredicate]) -> RowPredicate:
        """Return the condition of the rows that match at least one of some conditions."""
        if len(predicates) == 1:
            return predicates[0]
        return cls(" OR ".join(f"(\n{predicate.text}\n)" for predicate in predicates))  # a text may end in a comment


def _equality(node: Any) -> tuple[str, list[int | str]] | None:
    """Return the column and the values of `column = value` or `column IN (values)`; else None."""
    if node.get("type") == "COMPARE_EQUAL":
        operands = [node["left"], node["right"]]
        operands.sort(key=lambda one: str(one["class"]) != "COLUMN_REF")
    elif node.get("type") == "COMPARE_IN":
        operands = list(node["children"])
    else:
        return None
    column, *others = operands
    values = [_plain_constant(one) for one in others]
    if column["class"] != "COLUMN_REF" or not values or None in values:
        return None
    return str(column["column_names"][0]), [value for value in values if value is not None]


def _plain_constant(node: Any) -> int | str | None:
    """Return a whole number or a text; None for anything else."""
    literal = node.get("literal", {}) if node["class"] == "CONSTANT" else {}
    kind, text = literal.get("kind"), str(literal.get("text"))
    if kind == "INTEGER":
        return int(text)
    return text if kind == "STRING" else None


def _duckdb_reason(error: duckdb.Error) -> str:
    """Return the message of DuckDB on one line, without the copy of the statement that it puts below."""
    return " ".join(str(error).partition("\n\nLINE ")[0].split())[:300].rstrip(".")


def _type_name(kind: pa.DataType) -> str:
    """Return the type of a column's values, whether or not they are numbered by a dictionary."""
    return str(kind.value_type if pa.types.is_dictionary(kind) else kind)


@lru_cache(maxsize=16)  # each step of a job reads the same rules
def _parsed(text: str) -> object:
    if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise InvalidPredicate(
            text.encode("ascii", "backslashreplace").decode(), "it contains something that is not text"
        )
    if text.count("(") > _MOST_OPENED:
        raise InvalidPredicate(text[:200], f"it has more than {_MOST_OPENED} parentheses; use IN for a list of values")
    try:
        with duckdb_files.isolated_duckdb() as connection:
            parameters = [f"{_BEFORE}{text}{_AFTER}"]
            ((document,),) = connection.execute("SELECT json_serialize_sql(?)", parameters).fetchall()
        parsed = json.loads(document)
    except RecursionError:
        raise InvalidPredicate(text[:200], "it is nested too deeply") from None
    except duckdb.Error as error:
        raise InvalidPredicate(text[:200], _duckdb_reason(error)) from error
    if parsed["error"]:
        raise InvalidPredicate(text, _reason(text, parsed))
    node = parsed["statements"][0]["node"] if len(parsed["statements"]) == 1 else {}
    plain = node.get("type") == "SELECT_NODE" and len(node.get("select_list", ())) == 1
    from_rows = plain and node["from_table"].get("table_name") == "rows" and node["where_clause"] is None
    if not from_rows or node["modifiers"] or node["group_expressions"] or node["having"] or node["qualify"]:
        raise InvalidPredicate(text, "it is more than one condition")
    if max(depth for _, depth in _expressions(node["select_list"][0])) > _DEEPEST:
        raise InvalidPredicate(text[:200], "it is nested too deeply")
    return node["select_list"][0]


def _reason(text: str, parsed: dict[str, object]) -> str:
    """Return why a text is not a valid condition, without revealing the query around it."""
    reason = str(parsed.get("error_message", "it is not an SQL condition"))
    if "Only SELECT" in reason:
        return "it is more than one condition"
    position = str(parsed.get("position", ""))
    is_behind = position.isdigit() and int(position) >= len((_BEFORE + text).encode())
    return "it ends too early, or has an extra closing parenthesis" if is_behind else reason


def _expressions(root: object) -> Iterator[tuple[dict[str, object], int]]:
    """Yield all expressions in a parsed one with their depth; without recursion, since users may nest any number."""
    waiting: list[tuple[object, int]] = [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        if isinstance(node, dict):
            if "class" in node:
                yield node, depth
                depth += 1
            waiting.extend((child, depth) for child in reversed(node.values()))
        elif isinstance(node, list):
            waiting.extend((child, depth) for child in reversed(node))


def _check_total(text: str, node: dict[str, object], depth: int) -> None:
    """Refuse an expression undefined for some values of a column: rules apply to files that do not exist yet.

    Raises InvalidPredicate.
    """
    if depth > _MAX_DEPTH:
        raise InvalidPredicate(text[:200], f"it is nested more than {_MAX_DEPTH} deep")
    if (
        node["class"] == "CAST"
        and not node["try_cast"]
        and cast("dict[str, str]", node["child"])["class"] != "CONSTANT"
    ):
        raise InvalidPredicate(text, "CAST fails where a value cannot be converted. Write TRY_CAST(… AS …)")
    if node["class"] == "FUNCTION" and node["function_name"] in _DIVISIONS:
        arguments = cast("list[dict[str, dict[str, object]]]", node["arguments"])
        divisor = cast("dict[str, str]", arguments[-1]["expression"].get("literal", {})).get("text", "0")
        if not _is_other_than_zero(divisor):
            reason = f"{node['function_name']} fails where the divisor is 0. Divide by a number, or multiply instead"
            raise InvalidPredicate(text, reason)


def _is_other_than_zero(literal: str) -> bool:
    try:
        return float(literal) != 0
    except ValueError:
        return False
