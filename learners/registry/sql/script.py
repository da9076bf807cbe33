"""SQL script of a network or pool: its tables, and a view of the class probabilities of every row of a table."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from learners.errors import InvalidParameter, LearnerError, UnknownColumn
from learners.models.model import Model
from learners.registry.model_kinds import kind_of
from learners.registry.sql.dialects import (
    LOG_ZERO,
    Dialect,
    Query,
    find_sql_dialect,
    quote_qualified_name,
    quote_table_name,
)
from learners.registry.sql.encoding import value_encoding_rows
from learners.registry.sql.families import compatible_code_rows
from learners.registry.sql.sql_networks import Writable
from learners.registry.sql.table_rows import add_table_row_answers
from learners.registry.sql.tree_nodes import WAYS
from learners.schema import Schema
from learners.schema.schema import FEW_CLASSES

# Numbers of all look-up tables together: a script of some 20 MB; in a file of Parquet some GB.
MOST_CELLS, MOST_CELLS_OF_FILE = 1 << 20, 1 << 28
MOST_STEPS = 900  # that read one another: DuckDB refuses a depth of 1,000
BLOCK_CELLS = 1 << 18
ROWS_OF_INSERT, NUMBERS_OF_NODE = 500, 8
# What helps where the tables are too large.
OF_TABLES = (
    "For DuckDB, write the script to a file (--out, path=): the table then goes into a Parquet file beside it. Or train with "
    "fewer parents (a smaller k), fold rare values (max_values)"
)


class TooLargeForSQL(LearnerError, ValueError):
    """Raised if a network is too large for SQL."""

    def __init__(self, what: str, instead: str = OF_TABLES) -> None:
        super().__init__(f"{what}. {instead}, or score with fewpass predict (docs/limits.md#memory-time-and-size).")


def sql_logs_path(script: Path) -> Path:
    """Return where the log probabilities of a large model go that a script reads: a name that no data of the user has."""
    return script.with_name(f"{script.name}.parquet")


def sql_script(
    model: Model,
    *,
    name: str,
    table: str,
    dialect: str = "duckdb",
    key: Sequence[str] = (),
    absent: Collection[str] = (),
    logs_path: str | None = None,
) -> str:
    """Export a network, or a pool of networks, to SQL that predicts as `predict_proba` does.

    The script creates tables of the model's values and log probabilities, and a view. The view has the key
    columns (by default the model's own), `prediction`, and `probability_<class>` for each class; the suffix
    `_of_model` is added if a column of the table has that name. Column types are those of training. If more
    values are missing than `predict` is sure to sum out exactly, the view returns NULL.

    `name`: of the view; the names of the tables begin with it. "schema.name" puts them into a schema.
    `table`: whose rows are answered; it may have a schema before it.
    `dialect`: one of `DIALECTS`.
    `key`: columns of the table that the view shows beside the answers.
    `absent`: columns of the model that the table does not have.
    `logs_path`: where the script finds the log probabilities that `write_log_probabilities` has written; of DuckDB.
    Raises NoSQL if it is neither a network nor a pool of networks; TooLargeForSQL if it has more than 256 classes, or
    more than `MOST_CELLS` numbers, with `logs_path` more than `MOST_CELLS_OF_FILE`, or needs more than `MOST_STEPS` steps; UnknownColumn if an absent column does not belong to the model; InvalidParameter if
    names collide; UnknownDialect, UnsupportedColumn, UnwritableText.
    """
    writable = kind_of(model).sql(model)
    schema = model.schema
    if schema.n_classes > FEW_CLASSES:
        raise TooLargeForSQL(
            f"The model has {schema.n_classes:,} classes, but SQL export supports {FEW_CLASSES} at most"
        )
    names = [attribute.name for attribute in schema.attributes]
    for column in absent:
        if column not in names:
            raise UnknownColumn(column, names)
    shown = list(key) or [names[i] for i in writable.used if names[i] not in absent]
    spoken = find_sql_dialect(dialect)
    own_names = {column if spoken.distinguishes_case else column.lower() for column in shown}
    answers = [
        f"{answer}_of_model" if (answer if spoken.distinguishes_case else answer.lower()) in own_names else answer
        for answer in ("prediction", *(f"probability_{value}" for value in schema.classes))
    ]
    _check_names(spoken, "dialect", answers)
    _check_names(spoken, "key", [*shown, *answers])
    _check_names(spoken, "dialect", list(dict.fromkeys([*key, *(names[i] for i in writable.used)])))
    if logs_path is not None and spoken.name != "duckdb":
        raise InvalidParameter("dialect", spoken.name, because="only DuckDB reads tables from Parquet files")
    n_cells, most = _n_cells(writable), MOST_CELLS if logs_path is None else MOST_CELLS_OF_FILE
    if n_cells > most:
        raise TooLargeForSQL(
            f"The tables of the model have {n_cells:,} numbers, more than the {most:,} that SQL export allows"
        )
    query = Query(spoken, schema.n_classes, name)
    source = add_table_row_answers(query, writable, quote_qualified_name(spoken, table), shown, absent)
    if query.n_steps > MOST_STEPS:
        raise TooLargeForSQL(
            f"Rows that lack some of {len(writable.used):,} columns need {query.n_steps:,} steps in SQL, more than the "
            f"{MOST_STEPS:,} that databases nest",
            "Train on fewer columns, or with the learner kdb or skdb, which needs fewer steps",
        )
    n_reads = query.most_reads(source)
    if spoken.most_reads is not None and n_reads > spoken.most_reads:
        raise TooLargeForSQL(
            f"Rows that lack columns would read a table {n_reads:,} times, more than the {spoken.most_reads:,} of {spoken.name}",
            "Use the dialect duckdb or postgres, or train with the learner kdb or skdb, which reads fewer",
        )
    columns = [f"k{i} AS {spoken.identifier(column)}" for i, column in enumerate(shown)]
    columns.append(f"{_prediction(query, schema)} AS {spoken.identifier(answers[0])}")
    columns += [f"p{k} AS {spoken.identifier(answer)}" for k, answer in enumerate(answers[1:])]
    tables = _tables(query, writable, logs_path)
    view = f"CREATE VIEW {quote_qualified_name(spoken, name)} AS\n{query.text(columns, source)};\n"
    return "\n".join([*tables, view])


def is_too_large_for_script(model: Model) -> bool:
    """Return whether the tables of a model are too large for the script itself. Raises NoSQL."""
    return _n_cells(kind_of(model).sql(model)) > MOST_CELLS


def write_log_probabilities(model: Model, path: str | Path) -> None:
    """Write the table of log probabilities to a Parquet file: family, cell, l0, l1, … Raises NoSQL."""
    writable = kind_of(model).sql(model)
    n_classes = writable.schema.n_classes
    names = [f"l{k}" for k in range(n_classes)]
    columns = pa.schema([("family", pa.int32()), ("cell", pa.int32()), *((name, pa.float64()) for name in names)])
    with pq.ParquetWriter(path, columns, compression="zstd") as writer:
        for families in writable.families:
            for family in range(len(families.order)):
                logs = np.maximum(families.logs(family), LOG_ZERO)
                rows = max(1, BLOCK_CELLS // n_classes)
                for first in range(0, len(logs), rows):
                    block = logs[first : first + rows]
                    cells = np.arange(first, first + len(block), dtype=np.int32)
                    of_family = np.full(len(block), families.first + family, np.int32)
                    arrays = [of_family, cells, *np.ascontiguousarray(block.T)]
                    writer.write_table(pa.table([pa.array(array) for array in arrays], schema=columns))


def _n_cells(writable: Writable) -> int:
    """Return the number of values in all tables."""
    n_cells = sum(families.n_cells for families in writable.families) * writable.schema.n_classes
    n_cells += 0 if writable.discriminant is None else writable.discriminant.n_numbers
    return n_cells + (0 if writable.trees is None else len(writable.trees.nodes) * NUMBERS_OF_NODE)


def _check_names(dialect: Dialect, parameter: str, columns: Sequence[str]) -> None:
    names = columns if dialect.distinguishes_case else [column.lower() for column in columns]
    for place, column in enumerate(names):
        if column in names[:place]:
            both = f"{columns[names.index(column)]!r} and {columns[place]!r}"
            given = dialect.name if parameter == "dialect" else columns[place]
            which = f"the columns {both} have the same name in {dialect.name}"
            if column.startswith("probability_") and columns[names.index(column)].startswith("probability_"):
                which += (
                    ", as the names of these classes differ in capitals only. Rename one of them, or choose a dialect that "
                    "distinguishes capitals"
                )
            raise InvalidParameter(parameter, given, because=which)


def _prediction(query: Query, schema: Schema) -> str:
    """Return the expression for the most probable class; the first one on ties."""
    values = schema.class_values()
    shares = [f"p{k}" for k in query.classes]
    cases = " ".join(
        f"WHEN {share} THEN {query.dialect.literal(value)}" for share, value in zip(shares, values, strict=True)
    )
    return f"CASE {query.dialect.largest(shares)} {cases} END"


def _tables(query: Query, writable: Writable, logs_path: str | None) -> Iterator[str]:
    """Yield the statements that create and fill the tables; log probabilities are read from a Parquet file, if given."""
    dialect = query.dialect
    # Codes and their numbers are INTEGER, as expressions of literals are: DuckDB joins without a cast three times as fast.
    real, text = dialect.real, dialect.text
    logs = ", ".join(f"l{k} {real}" for k in query.classes)
    tables: dict[str, tuple[str, Iterable[str]]] = {
        "values": (
            f"attribute INTEGER, text_value {text}, whole_value {dialect.whole}, code INTEGER",
            value_encoding_rows(writable.schema, writable.used, dialect),
        ),
        "codes": (
            "attribute INTEGER, given INTEGER, code INTEGER",
            chain.from_iterable(map(compatible_code_rows, writable.summing)),
        ),
        "logs": (
            f"family INTEGER, cell INTEGER, {logs}",
            chain.from_iterable(families.rows(dialect) for families in writable.families),
        ),
        "families": (
            "family INTEGER",
            [str(families.first + i) for families in writable.families for i in range(len(families.order))],
        ),
        "factorials": (
            f"n INTEGER, log_factorial {real}",
            (f"{n}, {dialect.number(math.lgamma(n + 1))}" for n in range(len(writable.used) + 2)),
        ),
    }
    if writable.trees is not None:
        below = ", ".join(f"{side}_node INTEGER, {side}_attribute INTEGER" for side in ("left", "right"))
        tables["trees"] = ("root INTEGER, attribute INTEGER", writable.trees.root_rows())
        columns = f"node INTEGER, low INTEGER, high INTEGER, mask {text}, {below}, left_share {real}, label INTEGER, score {real}"
        tables["nodes"] = (columns, writable.trees.node_rows(dialect))
        tables["ways"] = ("go INTEGER, is_left INTEGER", [f"{go}, {is_left}" for go, is_left in WAYS])
    if writable.discriminant is not None:
        own = writable.discriminant
        tables["covariances"] = (f"class INTEGER, i INTEGER, j INTEGER, v {real}", own.covariance_rows(dialect))
        tables["means"] = (f"class INTEGER, i INTEGER, mean {real}", own.mean_rows(dialect))
        tables["scores"] = (f"i INTEGER, code INTEGER, z {real}", own.score_rows(dialect))
    for of, (columns, rows) in tables.items():
        named = quote_table_name(dialect, query.prefix, of)
        if of == "logs" and logs_path is not None:
            yield f"CREATE TABLE {named} AS SELECT * FROM read_parquet({dialect.literal(logs_path)});"
            continue
        yield f"CREATE TABLE {named} ({columns});"
        yield from _inserts(named, rows)
    if dialect.name == "sqlite":  # which has no joins but by indices
        for of, columns in (
            ("values", "attribute, text_value, whole_value"),
            ("codes", "attribute, given"),
            ("logs", "family, cell"),
            *([("nodes", "node")] if writable.trees is not None else []),
            *([("scores", "i, code")] if writable.discriminant is not None else []),
        ):
            named = quote_table_name(dialect, query.prefix, of)
            index = quote_table_name(dialect, query.prefix, f"{of}_index")
            yield f"CREATE INDEX {index} ON {named.rpartition('.')[2]} ({columns});"


def _inserts(table: str, rows: Iterable[str]) -> Iterator[str]:
    block: list[str] = []
    for row in rows:
        block.append(f"({row})")
        if len(block) == ROWS_OF_INSERT:
            yield f"INSERT INTO {table} VALUES\n" + ",\n".join(block) + ";"
            block = []
    if block:
        yield f"INSERT INTO {table} VALUES\n" + ",\n".join(block) + ";"
