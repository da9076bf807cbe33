"""The schema pass on its own, and a schema that loses nothing gradient boosting would use."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from learners.passes.column_summaries import ColumnSummaries
from learners.passes.engine import OnProgress, collect, require_rows
from learners.passes.row_weights import with_weights
from learners.passes.sources.null_class import with_classes
from learners.passes.sources.source import Source
from learners.schema import Overrides, Schema
from learners.schema.discretise import quantile_cut_points
from learners.schema.schema import MAX_CLASSES

NO_CUTS: Mapping[str, tuple[float, ...]] = MappingProxyType({})


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


def binned_schema(summaries: ColumnSummaries, max_bin: int, known: Mapping[str, tuple[float, ...]] = NO_CUTS) -> Schema:
    """The schema with at most `max_bin` intervals for each numeric column, whether or not they tell the classes apart.

    Histogram boosting bins numbers by their quantiles before it looks for splits. Doing that in the schema gives trees
    over codes that any model file, job or request can carry.

    `summaries`: with a target.
    `max_bin`: a column with no more distinct values keeps them all apart; cut points that the user gave stay.
    `known`: cut points of columns that have them from elsewhere.
    Raises EmptyData or SchemaError as `ColumnSummaries.build_schema` does.
    """
    return summaries.build_schema(lambda name, histogram: known.get(name) or quantile_cut_points(histogram, max_bin))
