"""Cost of forgetting rows: the columns whose cut points move, and the rows to read again for them."""

from typing import Any

from learners.passes.column_summaries import ColumnSummaries
from learners.passes.learner import Learner, Part, Passes, drive
from learners.passes.refreshed_schema import moved_columns
from learners.registry import recipes
from learners.registry.model_kinds import load_model
from learners.schema import Schema
from service.jobs.steps import Run, progress_reporter
from service.product.datasets.data_sources import parameters_with_file_paths
from service.product.datasets.dataset_statistics import ForgivingStore, statistics_ledger
from service.product.datasets.forgotten_rows import select_unforgotten_rows
from service.product.datasets.training_rows import open_training_source, select_training_rows, training_column_overrides
from service.product.versions.provenance import kept_back
from service.requests.json_values import JSONObject
from service.requests.requests import TrainRequest
from service.settings import available_threads
from service.workspace import Workspace
from storage.datasets.predicates import RowPredicate
from storage.models.compiled import map_compiled
from storage.models.model_versions import ModelVersion


class _Unchanged(ForgivingStore):
    """Read-only statistics."""

    def put(self, key: str, *values: Any, **named: Any) -> None:
        """Store nothing."""


def forgetting_price(
    workspace: Workspace, version: ModelVersion, request: TrainRequest, predicate: RowPredicate, run: Run
) -> JSONObject:
    """Return the cost of retraining a version without some rows: moved cut points and rows to read.

    The schema of the remaining rows is found as that training will find it, which reads the files that hold such rows, and
    columns of too many numbers to subtract any. Returns `model`; `cut_points_move`, the columns whose families are counted
    again; and `n_rows_again`, rows to read for these, or because the learner reads all rows each time.
    """
    trained = load_model(*map_compiled(version.arrow_path))
    source = open_training_source(workspace, request, run)
    ledger = statistics_ledger(workspace, request, run)
    noted = kept_back(version)
    rows = select_training_rows(workspace, source, request, run, noted if noted.is_learned else None)
    left = select_unforgotten_rows(rows.learned, [predicate], ledger.forgotten, run.report)
    parameters = parameters_with_file_paths(request.parameters)
    overrides = training_column_overrides(workspace, request)
    by = request.holdout_by if rows.by is None else rows.by.decides_by(request.holdout_by)
    learner = recipes.learner(request.learner, parameters, trained.schema.target, None, overrides, by)
    found: list[Schema] = []
    store = None if ledger.store is None else _Unchanged(ledger.store.directory, ledger.store.max_bytes)
    drive(
        Learner(learner.name, _schema_only(learner.passes, found, trained), 1),
        [Part(left.source, store, left)],
        threads=available_threads(workspace.settings),
        on_progress=progress_reporter(run.report),
    )
    moved = moved_columns(trained.schema, found[0]) if found else []
    recipe = recipes.learner_recipe(request.learner)
    reads_all = recipe.goes_on or not recipe.keeps_schema
    return {
        "model": f"{version.name}@{version.version}",
        "cut_points_move": moved,
        "n_rows_again": left.source.n_rows if moved or reads_all else 0,
    }


def _schema_only(passes: Passes[Any], found: list[Schema], trained: Any) -> Passes[Any]:
    """Run the first pass of a learner if it summarises columns, and append the resulting schema to `found`."""
    request = next(passes)
    if isinstance(request, ColumnSummaries):
        request = passes.send((yield request))
        schema = getattr(request, "schema", None)
        found += [schema] if isinstance(schema, Schema) else []
    passes.close()
    return trained
