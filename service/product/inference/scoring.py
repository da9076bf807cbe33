"""Scoring: predictions, metrics and scored Parquet files, batch by batch."""

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from learners.answer_checks import check_answer_distributions
from learners.classifiers.lookup.look_up_tables import CELLS_AT_A_TIME, split_chunk_into_blocks
from learners.errors import EmptyData, NoClass, UnknownColumn, names_with_suggestions
from learners.evaluation.column_losses import ColumnLosses
from learners.evaluation.metrics import (
    LEAST_PROBABILITY,
    NO_ROWS,
    RowScores,
    class_prior_baseline_losses,
    metrics_from_row_scores,
    score_probability_rows,
    standard_error,
)
from learners.evaluation.model_report import ColumnCounts, ModelReport, model_report_from_scores, report_column_counts
from learners.models.explanation import explain
from learners.models.model import Model
from learners.passes.sources.source import Source
from learners.registry.model_kinds import kind_of, structure_posterior
from learners.schema import Chunk
from learners.schema.encoding.encode import encode, nonnull_class_codes
from learners.schema.encoding.unlike_training import UnlikeTraining
from service.jobs.steps import Report, ignore_report
from service.product.outputs import Output, RowWriter, check_rows_output, ordered_thread_map, output_draft
from service.requests.json_values import JSONObject
from service.requests.problems import InvalidRequest
from service.serving.class_answers import (
    Probabilities,
    check_class_columns,
    check_top_k,
    predictions_batch,
    top_classes,
    top_classes_batch,
)

SLOW_ROWS = 2048  # that are explained, or get an interval, together
Labels = np.ndarray[Any, np.dtype[np.uint8 | np.uint16]]


def probabilities_and_true_classes(model: Model, source: Source) -> tuple[Probabilities, Labels]:
    """Return probabilities (n_rows, n_classes) and true classes (n_rows,) of all rows; UnknownColumn, EmptyData as
    `measure_model`.
    """
    parts = list(_answered(model, source, ignore_report))
    if not parts:
        raise EmptyData(NO_ROWS)
    return np.concatenate([part for part, _ in parts]), np.concatenate([y for _, y in parts])


def _answered(
    model: Model,
    source: Source,
    report: Report,
    takes_unknown: bool = False,
    counted: Sequence[ColumnCounts | ColumnLosses] = (),
    unlike: UnlikeTraining | None = None,
) -> Iterator[tuple[Probabilities, Labels]]:
    """Yield probabilities and true classes, batch by batch."""
    if model.schema.target not in source.arrow_schema.names:
        raise UnknownColumn(str(model.schema.target), source.arrow_schema.names)
    n_rows = 0
    for batch in source.batches() if unlike is None else unlike.watch(source.batches()):
        rows = encode(batch, model.schema, with_class=not takes_unknown)
        if takes_unknown:
            rows = Chunk(rows.x, nonnull_class_codes(batch, model.schema), rows.numbers)
        for chunk in split_chunk_into_blocks(rows, model.schema.n_classes):
            assert chunk.y is not None
            if chunk.n_rows:
                for each in counted:
                    each.add(chunk)
                yield check_answer_distributions(model.predict_proba(chunk), n_rows), chunk.y
            n_rows += chunk.n_rows
        report({"rows_done": n_rows, "rows_total": source.n_rows})


def mean_log_likelihood(model: Model, source: Source, report: Report = ignore_report) -> JSONObject:
    """Mean log likelihood of rows in nats under a model without classes; for a posterior over structures, under the
    best one. EmptyData.
    """
    kind, posterior = kind_of(model), structure_posterior(model)
    if posterior is not None and posterior.posterior.bge is None and not posterior.conditional_tables:
        from learners.orders.queries.predictive import NoTables

        return {"n_test_rows": 0, "unmeasured": str(NoTables())}  # after hours of learning no reason to fail
    total, squares, n_rows, n_possible = 0.0, 0.0, 0, 0
    for batch in source.batches():
        logs = kind.log_likelihood(model, batch)
        possible = logs[np.isfinite(logs)]
        total, squares = total + float(possible.sum()), squares + float(possible @ possible)
        n_possible += possible.size
        n_rows += batch.num_rows
        report({"rows_done": n_rows, "rows_total": source.n_rows})
    if not n_rows:
        raise EmptyData(NO_ROWS)
    mean = total / max(1, n_possible)
    variance = max(0.0, squares - total * mean) / max(1, n_possible - 1)
    metrics = {
        "log_likelihood": mean,
        "log_likelihood_error": math.sqrt(variance / n_possible) if n_possible > 1 else None,
        "n_impossible": n_rows - n_possible,
        "n_test_rows": n_rows,
    }
    if posterior is None:
        return metrics
    if not n_possible:
        raise EmptyData(f"{NO_ROWS} (none of {n_rows:,} is complete with known values)")
    # To a graph no row is impossible, but some are unknown.
    return metrics | {"n_impossible": 0, "n_incomplete": n_rows - n_possible}


class Measurement(NamedTuple):
    """Evaluation of a model on rows; for a model without classes only `metrics`, which contain `n_test_rows`.

    `scores` are of all rows, part by part; `floor` is what the class shares alone lose on the same rows. `warnings` are
    those of `UnlikeTraining`.
    """

    metrics: JSONObject
    scores: Sequence[RowScores] = ()
    floor: Mapping[str, float] = {}
    report: ModelReport | None = None
    warnings: Sequence[str] = ()

    @property
    def beside_floor(self) -> JSONObject:
        """Metrics with the log loss of the class shares and the share of the largest class."""
        if not self.floor:
            return self.metrics
        largest = 1 - self.floor["zero_one_loss"]
        return self.metrics | {"class_shares_log_loss": self.floor["log_loss"], "largest_class_share": largest}


def measure_model(
    model: Model,
    source: Source,
    report: Report = ignore_report,
    *,
    is_reported: bool = False,
) -> Measurement:
    """Measure a model on rows with known classes, without keeping all probabilities.

    Rows of classes that the model does not know have probability zero and count as wrong. Raises UnknownColumn if the target is not in the data, EmptyData if there are no rows.
    """
    if model.schema.target is None:
        return Measurement(mean_log_likelihood(model, source, report))
    counted = report_column_counts(model) if is_reported else None
    worth, unlike = ColumnLosses(model), UnlikeTraining(model.schema)
    scores, labels = [], []
    for probabilities, part in _answered(
        model, source, report, True, () if counted is None else (counted, worth), unlike
    ):
        scores.append(score_probability_rows(probabilities, part))
        labels.append(part)
    if not scores:
        raise EmptyData(NO_ROWS)
    y, n_classes = np.concatenate(labels), model.schema.n_classes
    n_unknown = int(np.count_nonzero(y >= n_classes))
    metrics = asdict(metrics_from_row_scores(scores)) | {
        "log_loss_error": standard_error(row_log_losses(scores)),
        "n_test_rows": len(y),
    }
    metrics |= {"n_unknown_class_rows": n_unknown} if n_unknown else {}
    full = model_report_from_scores(model, scores, y, counted, worth.measure()) if is_reported else None
    return Measurement(metrics, scores, class_prior_baseline_losses(y, n_classes), full, unlike.warnings())


def row_log_losses(scores: Sequence[RowScores]) -> Probabilities:
    """Log loss of each row, (n_rows,)."""
    return np.concatenate([-np.log(np.maximum(part.of_true, LEAST_PROBABILITY)) for part in scores])


def absent_column_warnings(model: Model, source: Source) -> list[str]:
    """Return warnings about the model's columns missing from the data; InvalidRequest if all are missing."""
    names, attributes = source.arrow_schema.names, [attribute.name for attribute in model.schema.attributes]
    absent = [name for name in attributes if name not in names]
    if attributes and len(absent) == len(attributes):
        raise InvalidRequest(f"The data has none of the model's columns ({', '.join(attributes[:8])}).")
    others = [name for name in names if name not in attributes]
    warnings = []
    if absent:
        warnings.append(
            f"The data lacks columns of the model: {names_with_suggestions(absent, others)}. Predictions are made without them."
        )
    if (warning := model.absent_columns_warning(absent)) is not None:
        warnings.append(warning)
    return warnings


def scored_batches(
    model: Model,
    source: Source,
    keep: Sequence[str],
    interval: float | None = None,
    is_explained: bool = False,
    threads: int = 1,
    top_k: int | None = None,
    unlike: UnlikeTraining | None = None,
    on_rows: Callable[[int], None] = ignore_report,
) -> Iterator[pa.RecordBatch]:
    """Yield the kept columns, `prediction`, `probability_<class>` and requested extras, batch by batch in order.

    With an interval `low_<class>` and `high_<class>`; with `top_k` the lists of `top_classes_batch` instead of a column for
    each class; explained, the columns of `explanation_columns`. Columns that are neither the model's nor kept are not read.
    `unlike` looks at the rows that are read; `on_rows` gets the number of each few rows answered, from any thread. Threads answer batches while the next are read. Without rows there is one empty batch. Raises UnknownColumn if a
    column to keep is not in the data; InvalidRequest if one is to be kept twice, or is called like a column of answers;
    InvalidPrediction, naming a row whose answer is no distribution.
    """
    for name in keep:
        if name not in source.arrow_schema.names:
            raise UnknownColumn(name, source.arrow_schema.names)
    classes = model.schema.class_values()
    known = {attribute.name for attribute in model.schema.attributes}
    n_cells = len(classes) * (1 + is_explained * len(known))
    if is_explained or interval is not None:  # slow, so fewer rows at once: progress comes more often
        n_cells = max(n_cells, CELLS_AT_A_TIME // SLOW_ROWS)

    def scored(numbered: tuple[int, pa.RecordBatch]) -> pa.RecordBatch:
        first, batch = numbered
        chunk = encode(batch, model.schema, with_class=False)
        parts = []
        for part in split_chunk_into_blocks(chunk, n_cells):
            parts.append(answers_of(part, first))
            first += part.n_rows
            if part.n_rows:
                on_rows(part.n_rows)
        answers = pa.concat_batches(parts) if len(parts) > 1 else parts[0]
        return join_batch_columns(batch.select(list(keep)), answers) if keep else answers

    def answers_of(chunk: Chunk, first: int) -> pa.RecordBatch:
        bounds = None if interval is None else model.credible_intervals(chunk, interval)
        probabilities = check_answer_distributions(model.predict_proba(chunk), first)
        if top_k is None:
            answers = predictions_batch(classes, probabilities, bounds)
        else:
            answers = top_classes_batch(classes, top_classes(probabilities, top_k))
        return join_batch_columns(answers, explanation_columns(model, chunk)) if is_explained else answers

    read = [name for name in source.arrow_schema.names if name in known or name in keep]
    header = scored((0, pa.RecordBatch.from_pylist([], source.arrow_schema)))
    twice = next((name for name in keep if header.schema.names.count(name) > 1), None)
    if twice is not None:
        raise InvalidRequest(f"The column {twice!r} would be written twice: remove it from --keep.", column=twice)
    # A model of no column of the data answers every row alike: some column must tell how many rows there are.
    batches = source.batches(read or source.arrow_schema.names[:1])
    batches = batches if unlike is None else unlike.watch(batches)
    answers = ordered_thread_map(scored, batches_with_first_row(batches), threads)
    yield from answers if source.n_rows else [header]


def batches_with_first_row(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield each batch with the number of its first row."""
    first = 0
    for batch in batches:
        yield first, batch
        first += batch.num_rows


def join_batch_columns(left: pa.RecordBatch, right: pa.RecordBatch) -> pa.RecordBatch:
    """Join the columns of two batches."""
    names = [*left.schema.names, *right.schema.names]
    return pa.RecordBatch.from_arrays([*left.columns, *right.columns], names=names)


def explanation_columns(model: Model, chunk: Chunk) -> pa.RecordBatch:
    """Return the explanation of each row: `against`, `log_odds`, `prior`, and `contribution_<attribute>` of each
    attribute (NoClass).
    """
    explanation = explain(model, chunk)
    against = pa.DictionaryArray.from_arrays(
        pa.array(explanation.against.astype(np.int32)), pa.array(model.schema.class_values())
    )
    columns: JSONObject = {"against": against, "log_odds": explanation.log_odds, "prior": explanation.prior}
    for i, attribute in enumerate(model.schema.attributes):
        columns[f"contribution_{attribute.name}"] = np.ascontiguousarray(explanation.contributions[:, i])
    return pa.RecordBatch.from_pydict(columns)


def score_files(
    model: Model,
    source: Source,
    output: Output,
    *,
    keep: Sequence[str] = (),
    interval: float | None = None,
    is_explained: bool = False,
    replace: bool = False,
    threads: int = 1,
    top_k: int | None = None,
    report: Report = ignore_report,
    warn: Callable[[str], None] = ignore_report,
) -> int:
    """Write the predicted rows to a Parquet or CSV file that appears only when complete; return the number of rows.

    `warn` gets a sentence about columns of the model that the data lacks, and what `UnlikeTraining` finds. Raises InvalidRequest if the output exists and is not to
    be replaced, or has the suffix of something else; if each of many classes would be a column.
    """
    if model.schema.target is None:
        raise NoClass
    check_top_k(top_k, interval)
    check_class_columns(model.schema.n_classes, top_k)
    check_rows_output(output, replace=replace)
    for absence in absent_column_warnings(model, source):
        warn(absence)
    n_rows, n_answered, unlike, lock = 0, 0, UnlikeTraining(model.schema), threading.Lock()

    def on_rows(n: int) -> None:
        nonlocal n_answered
        with lock:
            n_answered += n
            report({"step": "predict", "rows_done": n_answered, "rows_total": source.n_rows})

    with output_draft(output, replace=replace) as draft, RowWriter(draft, output, keep) as writer:
        for batch in scored_batches(model, source, keep, interval, is_explained, threads, top_k, unlike, on_rows):
            writer.write(batch)
            n_rows += batch.num_rows
    for words in unlike.warnings():
        warn(words)
    return n_rows
