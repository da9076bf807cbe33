"""Missing cells of rows filled by a density, from files to Parquet, batch by batch."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import get_args

import numpy as np
import pyarrow as pa

from learners.circuits.model import CircuitModel
from learners.circuits.queries.column_values import (
    filled,
    is_in_intervals,
    missing_cells,
    nameable,
    rows_of_batch,
    with_cells,
)
from learners.errors import InvalidParameter
from learners.kernels.arrays import Floats, Mask
from learners.models.query import How
from learners.passes.sources.source import Source
from service.product.inference.scoring import numbered
from service.product.outputs import Output, ParquetDraft, check_parquet, delivering, in_order, plain
from service.product.progress import Report, silent
from service.requests.json_values import JSONObject
from service.requests.problems import InvalidRequest

DRAW = "draw"
MAX_DRAWS = 1000


@dataclass(frozen=True)
class Filling:
    """How cells are filled; InvalidParameter if that cannot be.

    Parameters
    ----------
    how : see `learners.circuits.queries.column_values.filled`
    columns : to fill; none named: those of the model that the data has
    draws : completed rows for each row, with a column `draw` from 1 where there are several
    """

    how: How = "mode"
    columns: tuple[str, ...] = ()
    draws: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.how not in get_args(How):
            raise InvalidParameter("how", self.how, f"use one of {', '.join(get_args(How))}")
        if not 1 <= self.draws <= MAX_DRAWS:
            raise InvalidParameter("draws", self.draws, f"use 1 to {MAX_DRAWS:,}")
        if self.draws > 1 and self.how != "draw":
            raise InvalidParameter(
                "draws", self.draws, "use more than one only with how=draw: modes and means are always the same"
            )
        if not 0 <= self.seed < 1 << 63:
            raise InvalidParameter("seed", self.seed, "use a whole number from 0 to 2^63 - 1")


@dataclass
class Filled:
    """How many cells were filled, by column; and how many were left, in rows of probability zero or for want of a name."""

    n_rows: int = 0
    n_filled: Counter[str] = field(default_factory=Counter)
    n_left: int = 0

    def add(self, other: "Filled") -> None:
        """Add those of other rows."""
        self.n_rows += other.n_rows
        self.n_left += other.n_left
        self.n_filled.update(other.n_filled)


def variables_to_fill(model: CircuitModel, filling: Filling, names: Sequence[str]) -> list[int]:
    """The variables whose cells are filled, of data with columns of these names.

    Raises UnknownColumn or InvalidEvidence if the model does not know a column that is named, InvalidRequest if none is
    left.
    """
    columns = model.columns
    check_filling(model, filling)
    variables = columns.variables(filling.columns or [name for name in columns.names if name in names])
    known = set(model.circuit.scope(model.circuit.root))
    found = [v for v in variables if v in known]
    if not found:
        raise InvalidRequest(f"The data has none of the model's columns ({', '.join(columns.names[:8])}).")
    return found


def cells_to_fill(
    model: CircuitModel, batch: pa.RecordBatch, variables: Sequence[int], filling: Filling, first_row: int
) -> tuple[Mask, Floats]:
    """Where rows miss something of some variables, and with what it is filled.

    Returns `is_missing` (n_variables, n_rows) bool, and `values` (n_draws, n_variables, n_rows) float64, NaN elsewhere.
    """
    columns = model.columns
    x, is_missing = rows_of_batch(columns, batch), missing_cells(columns, batch)
    is_missing[[v for v in range(len(columns.names)) if v not in set(variables)]] = False
    # Missing cells say nothing, also where missing is a value to the model.
    x = np.where(is_missing, np.nan if x.dtype.kind == "f" else -1, x).astype(x.dtype)
    options: JSONObject = {"nameable": nameable(columns), "seed": filling.seed, "n_draws": filling.draws}
    return is_missing, filled(model, x, is_missing, filling.how, first_row=first_row, **options)


def imputed_batches(
    model: CircuitModel, batch: pa.RecordBatch, filling: Filling, first_row: int
) -> tuple[list[pa.RecordBatch], Filled]:
    """Completed rows, a batch for each draw, with a column `draw` where there are several."""
    variables = variables_to_fill(model, filling, batch.schema.names)
    is_missing, values = cells_to_fill(model, batch, variables, filling, first_row)
    names, counts, batches = list(batch.schema.names), Filled(batch.num_rows), []
    for number, own in enumerate(values, start=1):
        columns = dict(zip(names, plain(batch).columns, strict=True))
        for v in variables:
            name = model.columns.names[v]
            columns[name] = with_cells(model.columns, v, columns.get(name, pa.nulls(batch.num_rows)), own[v])
            counts.n_filled[name] += int(np.count_nonzero(~np.isnan(own[v])))
        counts.n_left += int(np.count_nonzero(is_missing & np.isnan(own)))
        if filling.draws > 1:
            columns[DRAW] = pa.array(np.full(batch.num_rows, number, np.int32))
        batches.append(pa.RecordBatch.from_pydict(columns))
    return batches, counts


def write_imputed(
    model: CircuitModel,
    source: Source,
    output: Output,
    filling: Filling,
    *,
    replace: bool = False,
    threads: int = 1,
    report: Report = silent,
    warn: Callable[[str], None] = silent,
) -> JSONObject:
    """Write the rows with their missing cells filled; memory does not grow with the rows.

    Returns `n_rows`, `n_filled` by column and `n_left`, as `Filled` has them. Raises InvalidRequest, UnknownColumn,
    InvalidEvidence or SchemaError.
    """
    check_parquet(output, replace=replace)
    names = source.arrow_schema.names
    variables = variables_to_fill(model, filling, names)
    if filling.draws > 1 and DRAW in names:
        raise InvalidRequest(
            f"Several draws add a column {DRAW!r}, and the data has one already. Rename it.", column=DRAW
        )
    for v in variables:
        if is_in_intervals(model.columns, v):
            warn(
                f"Column {model.columns.names[v]!r} was cut into intervals: its cells get the middle of one. Train with "
                "leaves=gaussian for numbers of its own."
            )
    counts = Filled()

    def of(numbered: tuple[int, pa.RecordBatch]) -> tuple[list[pa.RecordBatch], Filled]:
        first_row, batch = numbered
        return imputed_batches(model, batch, filling, first_row)

    with delivering(output, replace=replace) as draft, ParquetDraft(draft, source.arrow_schema.names) as writer:
        rows = source.batches() if source.n_rows else iter([pa.RecordBatch.from_pylist([], source.arrow_schema)])
        for batches, own in in_order(of, numbered(rows), threads):
            for batch in batches:
                writer.write(batch)
            counts.add(own)
            report({"step": "impute", "rows_done": counts.n_rows, "rows_total": source.n_rows})
    return {"n_rows": counts.n_rows, "n_filled": dict(counts.n_filled), "n_left": counts.n_left}


def check_filling(model: CircuitModel, filling: Filling) -> None:
    """Refuse columns to fill that the model does not know (UnknownColumn, InvalidEvidence)."""
    for v in model.columns.variables(filling.columns):
        model.columns.check_known(v)
