"""The schema pass on its own."""

from __future__ import annotations

from learners.passes.engine import OnProgress, collect, require_rows
from learners.passes.row_weights import with_weights
from learners.passes.sources.null_class import with_classes
from learners.passes.sources.source import Source
from learners.schema import Overrides, Schema
from learners.schema.inference.summaries import ColumnSummaries
from learners.schema.schema import MAX_CLASSES


def infer_schema(
    source: Source,
    target: str | None,
    overrides: Overrides | None = None,
    *,
    max_values: int = 1024,
    threads: int | None = None,
    on_progress: OnProgress | None = None,
) -> Schema:
    """Read a source once and say what each column means.

    Parameters
    ----------
    target : str or None
        The class column; None for an unsupervised model.
    overrides : mapping, optional
        Column name to `ColumnOverride`, or what `ColumnOverride.of` reads.
    max_values : int
        Values that a nominal attribute keeps.
    threads, on_progress
        As in `collect`.

    Raises
    ------
    EmptyData, SchemaError, UnknownColumn, SourceError, InvalidParameter
    """
    require_rows(source)
    source = with_weights(with_classes(source, target, overrides), overrides)
    summaries = ColumnSummaries(target, overrides, max_values=max_values, max_classes=MAX_CLASSES)
    return collect(summaries, source, threads=threads, on_progress=on_progress, n_passes=1).build_schema()
