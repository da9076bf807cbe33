"""Density scores of file rows (log likelihood and surprise rank) and imputation of missing cells, written to Parquet
batch by batch.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa

from learners.circuits.errors import NoGraphs
from learners.circuits.evaluation.leaf_distributions import density_variables
from learners.circuits.model import CircuitModel
from learners.circuits.queries.column_values import (
    chunk_of_batch,
    fill_cells,
    is_binned_variable,
    missing_cells,
    nameable,
    rows_of_batch,
    with_cells,
)
from learners.errors import InvalidParameter, UnknownColumn
from learners.kernels.arrays import Floats, Integers, Mask
from learners.models.estimation import Average
from learners.models.model import Model
from learners.models.query import How
from learners.orders.queries.predictive import GraphAverage
from learners.passes.sources.source import Source
from learners.registry.model_kinds import structure_posterior
from learners.schema.encoding.unlike_training import UnlikeTraining
from service.jobs.steps import Report, ignore_report
from service.product.inference.scoring import absent_column_warnings, batches_with_first_row, join_batch_columns
from service.product.outputs import (
    Output,
    RowWriter,
    check_rows_output,
    decode_dictionary_columns,
    ordered_thread_map,
    output_draft,
)
from service.requests.json_values import JSONObject
from service.requests.problems import InvalidRequest

LOG_LIKELIHOOD, RANK = "log_likelihood", "surprise_rank"
ROWS_AT_A_TIME = 1 << 16
DRAW = "draw"
MAX_DRAWS = 1000


def ranks_by_surprise(logs: Floats, ascending: Floats) -> Integers:
    """Return the surprise rank of each row, (n_rows,) int64: 1 + the number of less probable rows."""
    # Neighbours in turn are found in the same lines of memory: six times faster among 5 M rows.
    order = np.argsort(logs)
    ranks = np.empty(logs.size, np.int64)
    ranks[order] = np.searchsorted(ascending, logs[order], side="left") + 1
    return ranks


def density_columns(model: CircuitModel) -> list[str]:
    """Return the columns with a density; a row's likelihood is the product of probabilities and of densities of these
    columns.
    """
    return [model.columns.names[v] for v in density_variables(model.columns.circuit).tolist()]


def graph_averaged_scorer(
    model: Model, average: Average | None, n_rows: int, pause: Callable[[], None] | None = None
) -> GraphAverage | None:
    """Return a scorer that averages over the graphs of a posterior over structures; None if no average is requested.

    Raises NoGraphs if the model is not a posterior over graphs; NoRows, NoTables, UnknownColumn, InvalidParameter or ImpossibleEdges.
    """
    if average is None:
        return None
    if (posterior := structure_posterior(model)) is None:
        raise NoGraphs
    return GraphAverage(posterior.graph_queries, average, n_rows, pause)


def _columns(logs: Floats, ascending: Floats) -> pa.RecordBatch:
    is_unknown = np.isnan(logs)
    columns = [pa.array(own, mask=is_unknown) for own in (np.asarray(logs), ranks_by_surprise(logs, ascending))]
    return pa.RecordBatch.from_arrays(columns, names=[LOG_LIKELIHOOD, RANK])


def write_density_scores(
    model: CircuitModel,
    source: Source,
    output: Output,
    *,
    keep: Sequence[str] = (),
    over: GraphAverage | None = None,
    replace: bool = False,
    threads: int = 1,
    report: Report = ignore_report,
    warn: Callable[[str], None] = ignore_report,
) -> JSONObject:
    """Write the columns to keep, then `log_likelihood` and `surprise_rank` of every row, to a file that appears only
    when complete.

    Logarithms of all rows are kept in a file beside the output while ranks are made, so that memory does not grow with
    the rows. Columns to keep are read once more. `over` is of a posterior over structures, whose best graph `model` is:
    rows that lack a value have null in both columns. `warn` gets a sentence about columns of the model that the data lacks, and
    what `UnlikeTraining` finds. Raises InvalidRequest if the output exists and is not to be replaced,
    or a column to keep is called like one that is written; UnknownColumn if a column to keep is not in the data.

    Returns
    -------
    `n_rows`, the mean `log_likelihood` in nats of the possible rows, `n_impossible`, and `densities`: the columns whose
    part of it is a density, not a probability. Over graphs also `n_incomplete`, and `average` of `GraphAverage.to_json`.
    """
    check_rows_output(output, replace=replace)
    for name in keep:
        if name not in source.arrow_schema.names:
            raise UnknownColumn(name, source.arrow_schema.names)
        if name in (LOG_LIKELIHOOD, RANK) or list(keep).count(name) > 1:
            raise InvalidRequest(f"The column {name!r} would be written twice: remove it from --keep.", column=name)
    for absence in absent_column_warnings(model, source):
        warn(absence)
    read = [name for name in model.schema.columns if name in source.arrow_schema.names]
    row_logs, unlike = model.row_logs if over is None else over.log_likelihood, UnlikeTraining(model.schema)

    def of(batch: pa.RecordBatch) -> Floats:
        return row_logs(model.columns.rows_of_chunk(chunk_of_batch(model.columns, batch)))

    with output_draft(output, replace=replace) as draft:
        logs = _numbers_in(draft.with_name("logs"), source.n_rows)
        first = 0
        # Over graphs in one thread: sums over rows are then the same each time.
        for part in ordered_thread_map(of, unlike.watch(source.batches(read)), 1 if over else threads):
            logs[first : first + part.size] = part
            first += part.size
            report(_progress("score", first, source))
        for words in unlike.warnings():
            warn(words)
        ascending = _numbers_in(draft.with_name("sorted"), source.n_rows)
        ascending[:] = logs
        ascending.sort()
        with RowWriter(draft, output, keep) as writer:
            first = 0
            for batch in _kept(source, keep):
                n = batch.num_rows if keep else min(ROWS_AT_A_TIME, source.n_rows - first)
                writer.write(join_batch_columns(batch, _columns(logs[first : first + n], ascending)))
                first += n
                report(_progress("write", first, source))
        return _summary(model, over, ascending)


def _numbers_in(path: Path, n: int) -> Floats:
    """Return an (n,) float64 array mapped to a file; in memory if empty, since empty files cannot be mapped."""
    return np.lib.format.open_memmap(path, "w+", np.float64, (n,)) if n else np.empty(0)


def _progress(step: str, n_rows: int, source: Source) -> JSONObject:
    return {"step": step, "rows_done": n_rows, "rows_total": source.n_rows}


def _kept(source: Source, keep: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the columns to keep, in at least one batch; without columns, one empty batch per slice of rows."""
    if keep and source.n_rows:
        yield from map(decode_dictionary_columns, source.batches(list(keep)))
        return
    schema = pa.schema([source.arrow_schema.field(name) for name in keep])
    for _ in range(0, max(source.n_rows, 1), ROWS_AT_A_TIME):
        yield decode_dictionary_columns(pa.RecordBatch.from_pylist([], schema))


def _summary(model: CircuitModel, over: GraphAverage | None, ascending: Floats) -> JSONObject:
    n_impossible = int(np.searchsorted(ascending, -np.inf, side="right"))
    n_incomplete = int(np.count_nonzero(np.isnan(ascending)))
    possible = ascending[n_impossible : ascending.size - n_incomplete]
    return {
        "n_rows": int(ascending.size),
        "log_likelihood": float(possible.mean()) if possible.size else None,
        "n_impossible": n_impossible,
        "densities": density_columns(model),
    } | ({} if over is None else {"n_incomplete": n_incomplete, "average": over.to_json()})


@dataclass(frozen=True)
class Filling:
    """Options for filling cells; InvalidParameter for an impossible combination."""

    how: How = "mode"  # see `learners.circuits.queries.column_values.fill_cells`
    columns: tuple[str, ...] = ()  # to fill; none named: those of the model that the data has
    draws: int = 1  # completed rows for each row, with a column `draw` from 1 where there are several
    seed: int = 0

    def __post_init__(self) -> None:
        if self.how not in get_args(How):
            raise InvalidParameter("how", self.how, f"one of {', '.join(get_args(How))}")
        if not 1 <= self.draws <= MAX_DRAWS:
            raise InvalidParameter("draws", self.draws, f"1 to {MAX_DRAWS:,}")
        if self.draws > 1 and self.how != "draw":
            raise InvalidParameter(
                "draws", self.draws, because="several draws need how=draw: modes and means are always the same"
            )
        if not 0 <= self.seed < 1 << 63:
            raise InvalidParameter("seed", self.seed, "a whole number from 0 to 2^63 - 1")


@dataclass
class Filled:
    """Number of cells filled by column, and of cells left empty, in rows of probability zero or with values that have
    no name.
    """

    n_rows: int = 0
    n_filled: Counter[str] = field(default_factory=Counter)
    n_left: int = 0

    def add(self, other: "Filled") -> None:
        """Add the counts of other rows."""
        self.n_rows += other.n_rows
        self.n_left += other.n_left
        self.n_filled.update(other.n_filled)


def variables_to_impute(model: CircuitModel, filling: Filling, names: Sequence[str]) -> list[int]:
    """Return the variables whose cells are filled, in data with columns of these names.

    Raises UnknownColumn or InvalidEvidence if the model does not know a column that is named, InvalidRequest if none is
    left.
    """
    columns = model.columns
    for v in columns.variables(filling.columns):
        columns.check_known(v)
    variables = columns.variables(filling.columns or [name for name in columns.names if name in names])
    known = set(columns.circuit.scope(columns.circuit.root))
    chosen = [v for v in variables if v in known]
    if not chosen:
        raise InvalidRequest(f"The data has none of the model's columns ({', '.join(columns.names[:8])}).")
    return chosen


def imputed_cells(
    model: CircuitModel, batch: pa.RecordBatch, variables: Sequence[int], filling: Filling, first_row: int
) -> tuple[Mask, Floats]:
    """Return a mask of the missing cells of the given variables, and the values that fill them.

    Returns `is_missing` (n_variables, n_rows) bool, and `values` (n_draws, n_variables, n_rows) float64, NaN elsewhere.
    """
    columns = model.columns
    x, is_missing = rows_of_batch(columns, batch), missing_cells(columns, batch)
    is_missing[[v for v in range(len(columns.names)) if v not in set(variables)]] = False
    # Missing cells say nothing, also where missing is a value to the model.
    x = np.where(is_missing, np.nan if x.dtype.kind == "f" else -1, x).astype(x.dtype)
    options: JSONObject = {"nameable": nameable(columns), "seed": filling.seed, "n_draws": filling.draws}
    return is_missing, fill_cells(model, x, is_missing, filling.how, first_row=first_row, **options)


def imputed_batches(
    model: CircuitModel, batch: pa.RecordBatch, filling: Filling, first_row: int
) -> tuple[list[pa.RecordBatch], Filled]:
    """Return completed rows, one batch per draw, with a column `draw` if there are several."""
    variables = variables_to_impute(model, filling, batch.schema.names)
    is_missing, values = imputed_cells(model, batch, variables, filling, first_row)
    names, counts, batches = list(batch.schema.names), Filled(batch.num_rows), []
    for number, own in enumerate(values, start=1):
        columns = dict(zip(names, decode_dictionary_columns(batch).columns, strict=True))
        for v in variables:
            name = model.columns.names[v]
            columns[name] = with_cells(model.columns, v, columns.get(name, pa.nulls(batch.num_rows)), own[v])
            counts.n_filled[name] += int(np.count_nonzero(~np.isnan(own[v])))
        counts.n_left += int(np.count_nonzero(is_missing & np.isnan(own)))
        if filling.draws > 1:
            columns[DRAW] = pa.array(np.full(batch.num_rows, number, np.int32))
        batches.append(pa.RecordBatch.from_pydict(columns))
    return batches, counts


def write_imputed_rows(
    model: CircuitModel,
    source: Source,
    output: Output,
    filling: Filling,
    *,
    replace: bool = False,
    threads: int = 1,
    report: Report = ignore_report,
    warn: Callable[[str], None] = ignore_report,
) -> JSONObject:
    """Write the rows with their missing cells filled, in bounded memory.

    `warn` gets a sentence about numbers that are middles of intervals, about other columns of the model that the data lacks, and
    what `UnlikeTraining` finds. Returns `n_rows`, `n_filled` by column and `n_left`, as `Filled` has them. Raises InvalidRequest, UnknownColumn,
    InvalidEvidence or SchemaError.
    """
    check_rows_output(output, replace=replace)
    names = source.arrow_schema.names
    variables = variables_to_impute(model, filling, names)
    if filling.draws > 1 and DRAW in names:
        raise InvalidRequest(
            f"Several draws add a column {DRAW!r}, and the data has one already. Rename it.", column=DRAW
        )
    for v in variables:
        if is_binned_variable(model.columns, v):
            warn(
                f"Column {model.columns.names[v]!r} was cut into intervals, so its cells get the midpoint of an interval. For exact "
                "numbers, train a circuit (learner spn) with leaves=gaussian."
            )
    absent = {attribute.name for attribute in model.schema.attributes}.difference(names)
    if len(absent) < model.schema.n_attributes and absent.difference(filling.columns):
        for absence in absent_column_warnings(model, source):
            warn(absence)
    counts, unlike = Filled(), UnlikeTraining(model.schema)

    def of(numbered: tuple[int, pa.RecordBatch]) -> tuple[list[pa.RecordBatch], Filled]:
        first_row, batch = numbered
        return imputed_batches(model, batch, filling, first_row)

    with output_draft(output, replace=replace) as draft, RowWriter(draft, output, source.arrow_schema.names) as writer:
        rows = source.batches() if source.n_rows else iter([pa.RecordBatch.from_pylist([], source.arrow_schema)])
        for batches, own in ordered_thread_map(of, batches_with_first_row(unlike.watch(rows)), threads):
            for batch in batches:
                writer.write(batch)
            counts.add(own)
            report({"step": "impute", "rows_done": counts.n_rows, "rows_total": source.n_rows})
    for words in unlike.warnings():
        warn(words)
    return {"n_rows": counts.n_rows, "n_filled": dict(counts.n_filled), "n_left": counts.n_left}
