"""Rows scored by a density: log likelihood and surprise rank, from files to Parquet, batch by batch."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from learners.circuits.errors import NoGraphs
from learners.circuits.evaluation.leaf_shapes import density_variables
from learners.circuits.model import CircuitModel
from learners.circuits.queries.column_values import chunk_of_batch
from learners.errors import UnknownColumn
from learners.kernels.arrays import Floats, Integers
from learners.models.evidence import Average
from learners.models.model import Model
from learners.orders.model import OrderModel
from learners.orders.queries.predictive import GraphAverage
from learners.passes.sources.source import Source
from service.product.inference.scoring import absences, beside
from service.product.outputs import Output, ParquetDraft, check_parquet, delivering, in_order, plain
from service.product.progress import Report, silent
from service.requests.json_values import JSONObject
from service.requests.problems import InvalidRequest

LOG_LIKELIHOOD, RANK = "log_likelihood", "surprise_rank"
ROWS_AT_A_TIME = 1 << 16


def ranks_of(logs: Floats, ascending: Floats) -> Integers:
    """(n_rows,) int64: 1 of the least probable row, 1 + the number of less probable ones of any other."""
    # Neighbours in turn are found in the same lines of memory: six times faster among 5 M rows.
    order = np.argsort(logs)
    ranks = np.empty(logs.size, np.int64)
    ranks[order] = np.searchsorted(ascending, logs[order], side="left") + 1
    return ranks


def density_columns(model: CircuitModel) -> list[str]:
    """The columns that have a density: a row's likelihood is one of masses times one of densities of these."""
    return [model.columns.names[v] for v in density_variables(model.columns.circuit).tolist()]


def graph_average(
    model: Model, average: Average | None, n_rows: int, pause: Callable[[], None] | None = None
) -> GraphAverage | None:
    """What scores rows averaged over the graphs of a posterior over structures, if that is asked.

    Raises NoGraphs if the model is none; NoRows, NoTables, UnknownColumn, InvalidParameter or ImpossibleEdges.
    """
    if average is None:
        return None
    if not isinstance(model, OrderModel):
        raise NoGraphs
    return GraphAverage(model.graph_queries, average, n_rows, pause)


def _columns(logs: Floats, ascending: Floats) -> pa.RecordBatch:
    is_unknown = np.isnan(logs)
    columns = [pa.array(own, mask=is_unknown) for own in (np.asarray(logs), ranks_of(logs, ascending))]
    return pa.RecordBatch.from_arrays(columns, names=[LOG_LIKELIHOOD, RANK])


def write_scores(
    model: CircuitModel,
    source: Source,
    output: Output,
    *,
    keep: Sequence[str] = (),
    over: GraphAverage | None = None,
    replace: bool = False,
    threads: int = 1,
    report: Report = silent,
    warn: Callable[[str], None] = silent,
) -> JSONObject:
    """Write `log_likelihood` and `surprise_rank` of every row, behind the columns to keep, to a file that appears when it is complete.

    Logarithms of all rows are kept in a file beside the output while ranks are made, so that memory does not grow with
    the rows. Columns to keep are read once more. `over` is of a posterior over structures, whose best graph `model` is:
    rows that lack a value have null in both columns. Raises InvalidRequest if the output exists and is not to be replaced,
    or a column to keep is called like one that is written; UnknownColumn if a column to keep is not in the data.

    Returns
    -------
    `n_rows`, the mean `log_likelihood` in nats of the possible rows, `n_impossible`, and `densities`: the columns whose
    part of it is a density, not a probability. Over graphs also `n_incomplete`, and `average` of `GraphAverage.to_json`.
    """
    check_parquet(output, replace=replace)
    for name in keep:
        if name not in source.arrow_schema.names:
            raise UnknownColumn(name, source.arrow_schema.names)
        if name in (LOG_LIKELIHOOD, RANK) or list(keep).count(name) > 1:
            raise InvalidRequest(f"The column {name!r} to keep would be written twice: leave it out.", column=name)
    for absence in absences(model, source):
        warn(absence)
    read = [name for name in model.schema.columns if name in source.arrow_schema.names]
    row_logs = model.row_logs if over is None else over.log_likelihood

    def of(batch: pa.RecordBatch) -> Floats:
        return row_logs(model.columns.rows_of_chunk(chunk_of_batch(model.columns, batch)))

    with delivering(output, replace=replace) as draft:
        logs = _numbers_in(draft.with_name("logs"), source.n_rows)
        first = 0
        # Over graphs in one thread: sums over rows are then the same each time.
        for found in in_order(of, source.batches(read), 1 if over else threads):
            logs[first : first + found.size] = found
            first += found.size
            report(_progress("score", first, source))
        ascending = _numbers_in(draft.with_name("sorted"), source.n_rows)
        ascending[:] = logs
        ascending.sort()
        with ParquetDraft(draft, keep) as writer:
            first = 0
            for kept in _kept(source, keep):
                n = kept.num_rows if keep else min(ROWS_AT_A_TIME, source.n_rows - first)
                writer.write(beside(kept, _columns(logs[first : first + n], ascending)))
                first += n
                report(_progress("write", first, source))
        return _summary(model, over, ascending)


def _numbers_in(path: Path, n: int) -> Floats:
    """(n,) float64 in a file; no system maps an empty one."""
    return np.lib.format.open_memmap(path, "w+", np.float64, (n,)) if n else np.empty(0)


def _progress(step: str, n_rows: int, source: Source) -> JSONObject:
    return {"step": step, "rows_done": n_rows, "rows_total": source.n_rows}


def _kept(source: Source, keep: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The columns to keep, in at least one batch; without any, as many empty batches as there are slices of rows."""
    if keep and source.n_rows:
        yield from map(plain, source.batches(list(keep)))
        return
    schema = pa.schema([source.arrow_schema.field(name) for name in keep])
    for _ in range(0, max(source.n_rows, 1), ROWS_AT_A_TIME):
        yield plain(pa.RecordBatch.from_pylist([], schema))


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
