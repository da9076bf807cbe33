"""Profiles of registered data sets: sample rows, and the distribution of each column over the classes."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from learners.errors import EmptyData, UnknownColumn
from learners.passes.sources.source import Source
from learners.schema import Schema
from learners.schema.encoding.encode import encode, nonnull_class_codes
from learners.schema.schema import Attribute
from service.jobs.steps import ignore_report
from service.product.child_process import run_in_child_process
from service.product.datasets.data_sources import open_data_source
from service.product.datasets.dataset_schema import infer_schema_of_source
from service.product.datasets.dataset_statistics import RULES
from service.product.datasets.forgotten_rows import forgetting_rules_of_files
from service.product.datasets.registration import get_dataset
from service.requests.json_values import JSONObject
from service.workspace import Workspace
from storage.datasets.predicates import RowPredicate

SAMPLE_ROWS = 5_000
SHOWN_ROWS = 10
MOST_COLUMNS = 100
N_BINS = 12
MOST_LABELS = 20  # values of a histogram that are shown by themselves; the others are one bar
MOST_FILES = 50  # that rows are read from, spread evenly


def dataset_profile(workspace: Workspace, name: str, target: str | None = None, search: str = "") -> JSONObject:
    """Return some rows of a data set, and for each column the values by class and the share of missing rows.

    Classes are those of `target`, or of the data set's own; one that has a single value is a column like any other.
    the name of each returned column contains `search`. Returns `rows`, the first `SHOWN_ROWS`, of `n_rows` that were
    looked at: the first of parts spread evenly over the files, without forgotten ones. `columns`, at most
    `MOST_COLUMNS` of `n_columns`: `missing`, a share; `labels` and `counts`, rows by class and label. `classes`;
    `left_out` with the reason of each column. Raises NotFound, OutsideRoots, SourceError, UnknownColumn, SchemaError
    or EmptyData.
    """
    get_dataset(workspace, name)
    limit = workspace.settings.request_timeout_s
    return run_in_child_process(workspace, _profile, name, target, search.lower(), time_limit_s=limit)


def _profile(workspace: Workspace, name: str, target: str | None, search: str) -> JSONObject:
    dataset = get_dataset(workspace, name)
    source = open_data_source(workspace, dataset=name)
    target = target or dataset.target
    if target is not None and target not in source.arrow_schema.names:
        raise UnknownColumn(target, source.arrow_schema.names)
    rules = forgetting_rules_of_files(workspace, source, workspace.layout.dataset_directory(name) / RULES).rules()
    table = pa.Table.from_batches(_spread(source, [RowPredicate(rule.where) for rule in rules]))
    if not table.num_rows:
        raise EmptyData(f"Data set {name!r} has no rows.")
    if target is not None and len(table[target].unique()) < 2:  # one class: there is nothing to compare
        target = None
    if dataset.schema_json is not None and target == dataset.target:
        schema = Schema.from_json(dataset.schema_json)
    else:
        schema = infer_schema_of_source(Source.of_table(table), target, dataset.columns, 1, ignore_report)
    rows = table.combine_chunks().to_batches()[0]
    of_class = (
        np.zeros(rows.num_rows, np.int64) if target is None else nonnull_class_codes(rows, schema).astype(np.int64)
    )
    codes = encode(rows, schema, with_class=False).x
    by_share = np.argsort(-np.bincount(of_class, minlength=schema.n_classes)[: schema.n_classes], kind="stable")
    matches = [i for i, attribute in enumerate(schema.attributes) if search in attribute.name.lower()]
    return {
        "dataset": name,
        "target": target,
        "n_rows": rows.num_rows,
        "names": rows.schema.names[:MOST_COLUMNS],
        "rows": [
            [
                None if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
                for value in row.values()
            ]
            for row in rows.select(rows.schema.names[:MOST_COLUMNS]).slice(0, SHOWN_ROWS).to_pylist()
        ],
        "classes": [schema.classes[k] for k in by_share] if target is not None else ["all rows"],
        "columns": [_column(schema.attributes[i], rows, codes[i], of_class, by_share) for i in matches[:MOST_COLUMNS]],
        "n_columns": len(matches),
        "left_out": [{"name": each.name, "reason": each.reason} for each in schema.left_out],
    }


def _spread(source: Source, rules: list[RowPredicate]) -> Iterator[pa.RecordBatch]:
    """Yield about as many rows from each of at most `MOST_FILES` files, spread evenly, without forgotten rows."""
    files = [index for index, file in enumerate(source.files) if file.n_rows] or [0]
    chosen = [files[place] for place in np.unique(np.linspace(0, len(files) - 1, MOST_FILES).round().astype(int))]
    most = -(-SAMPLE_ROWS // len(chosen))
    for index in chosen:
        yield from _first(source.only({index}).thinned(most), rules, most)


def _first(source: Source, rules: list[RowPredicate], most: int) -> Iterator[pa.RecordBatch]:
    """Yield batches without forgotten rows until there are enough rows, at least one batch."""
    n_rows = 0
    for batch in source.batches():
        keep = np.ones(batch.num_rows, bool)
        for rule in rules:
            keep &= ~rule.mask(batch.select(list(rule.columns)))
        rows = batch.filter(pa.array(keep))
        yield rows.slice(0, most - n_rows)
        n_rows += rows.num_rows
        if n_rows >= most:
            return


def _column(
    attribute: Attribute, rows: pa.RecordBatch, codes: np.ndarray, of_class: np.ndarray, by_share: np.ndarray
) -> JSONObject:
    """Return the histogram of a column by class, in the order `by_share`: numbers in bins of equal width, the most
    frequent other values, and the rest of them as one.
    """
    column = rows.column(attribute.name)
    missing = pc.is_null(column, nan_is_null=True).to_numpy(zero_copy_only=False)
    labels, places = [*attribute.labels(), "(other)"], codes.astype(np.int64)
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        numbers = column.to_numpy(zero_copy_only=False).astype(np.float64)
        labels, places = _bins(numbers, np.isfinite(numbers) & ~missing)
    counts = np.zeros((by_share.size + 1, len(labels)), np.int64)
    np.add.at(counts, (of_class, places), 1)
    used = np.flatnonzero(counts.any(axis=0))  # of what no row has, nothing is shown
    rest: dict[str, np.ndarray] = {}
    if used.size > MOST_LABELS + 1:
        frequent = used[np.argsort(-counts[:, used].sum(axis=0), kind="stable")]
        used, others = frequent[:MOST_LABELS], frequent[MOST_LABELS:]
        rest = {f"{others.size:,} others": counts[by_share][:, others].sum(axis=1)}
    return {
        "name": attribute.name,
        "kind": attribute.kind,
        "type": attribute.arrow_type,
        "missing": float(missing.mean()),
        "labels": [*(labels[place] for place in used), *rest],
        "counts": np.column_stack([counts[by_share][:, used], *rest.values()]).tolist(),
    }


def _bins(numbers: np.ndarray, known: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Return bins over the known numbers (one per integer if these are few) and the bin of each row; the last bin is
    for missing values.
    """
    own = numbers[known]
    if not own.size:
        return ["(missing)"], np.zeros(numbers.size, np.int64)
    low, high = float(own.min()), float(own.max())
    is_whole = bool((own == np.round(own)).all())
    if is_whole and high - low < N_BINS:
        edges = np.arange(low, high + 2)
        labels = [f"{edge:.0f}" for edge in edges[:-1]]
    else:
        edges = np.linspace(low, high, N_BINS + 1)
        labels = [f"{a:.4g} to {b:.4g}" for a, b in zip(edges, edges[1:], strict=False)]
    places = np.full(numbers.size, len(labels), np.int64)
    places[known] = np.clip(np.searchsorted(edges, own, side="right") - 1, 0, len(labels) - 1)
    return [*labels, "(missing)"], places
