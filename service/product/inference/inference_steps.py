"""Job steps of registered versions: queries, scoring, imputation and evaluation."""

from collections.abc import Callable, Sequence
from typing import Any

from learners.circuits.model import CircuitModel
from learners.evaluation.metrics import standard_error
from learners.models.estimation import Average
from learners.models.model import Model
from learners.models.query import AnyQuery
from learners.passes.row_rules import apply_schema_null_class
from learners.passes.sources.source import Source
from service.jobs.steps import Report, Run, ignore_report
from service.product.datasets.data_sources import materialise_database_uris, open_data_source
from service.product.datasets.training_rows import open_evaluation_source
from service.product.inference import queries, scoring
from service.product.inference.density_rows import (
    Filling,
    graph_averaged_scorer,
    write_density_scores,
    write_imputed_rows,
)
from service.product.outputs import Output
from service.product.versions.learned_rows import later_rows_warnings, learned_rows_warnings
from service.product.versions.registry import load_served_model
from service.requests.json_values import JSONMapping, JSONObject
from service.requests.problems import InvalidRequest
from service.requests.requests import EvaluateRequest, ImputeRequest, QueryJobRequest, ScoreRequest
from service.settings import available_threads
from service.workspace import Workspace
from storage.files.atomic_files import create_folder


def query_model(workspace: Workspace, reference: str, questions: Sequence[AnyQuery]) -> list[JSONObject]:
    """Query a model's joint distribution or its posterior over structures in this process, without a time limit."""
    return queries.answer_model_queries(load_served_model(workspace, reference).model, questions)


def predict_files(
    workspace: Workspace,
    reference: str,
    uris: Sequence[str],
    output: Output,
    columns: JSONMapping | None = None,
    **how: Any,
) -> int:
    """Predict the classes of file rows into a Parquet file; returns the number of rows as `scoring.score_files` does."""
    version = load_served_model(workspace, reference)
    rows = _rows(workspace, uris, version.model, columns)
    for words in later_rows_warnings(workspace, version.name, version.version, version.schema, rows):
        how.get("warn", ignore_report)(words)
    return scoring.score_files(version.model, rows, output, threads=available_threads(workspace.settings), **how)


def score_file_likelihoods(
    workspace: Workspace,
    reference: str,
    uris: Sequence[str],
    output: Output,
    average: Average | None = None,
    columns: JSONMapping | None = None,
    **how: Any,
) -> JSONObject:
    """Write log likelihood and surprise rank of file rows to a Parquet file; as `density_rows.write_density_scores`."""
    model = load_served_model(workspace, reference).model
    circuit = queries.queryable_circuit(model)
    source = _rows(workspace, uris, circuit, columns)
    over = graph_averaged_scorer(model, average, source.n_rows)
    return write_density_scores(
        circuit, source, output, over=over, threads=available_threads(workspace.settings), **how
    )


def impute_files(
    workspace: Workspace, reference: str, uris: Sequence[str], output: Output, filling: Filling, **how: Any
) -> JSONObject:
    """Fill the missing cells of files and write a Parquet file; as `density_rows.write_imputed_rows`."""
    model = queries.queryable_circuit(load_served_model(workspace, reference).model)
    source = _rows(workspace, uris, model)
    return write_imputed_rows(model, source, output, filling, threads=available_threads(workspace.settings), **how)


def _rows(workspace: Workspace, uris: Sequence[str], model: Model, columns: JSONMapping | None = None) -> Source:
    """Open rows of files and databases in the types of the model, with the overrides of `columns`."""
    uris = materialise_database_uris(workspace, uris)
    return open_data_source(workspace, uris, is_remote=False, columns=columns, schema=model.schema)


def run_scoring_step(workspace: Workspace, run: Run) -> JSONObject:
    """Score the rows of a data set into the job's output."""
    request = ScoreRequest(**run.request)
    model = load_served_model(workspace, request.model).model

    def written(circuit: CircuitModel, rows: Source, output: Output, **how: Any) -> JSONObject:
        over = graph_averaged_scorer(model, request.average, rows.n_rows)
        return write_density_scores(circuit, rows, output, keep=request.keep, over=over, **how)

    return _into_output(workspace, run, request, written)


def run_imputation_step(workspace: Workspace, run: Run) -> JSONObject:
    """Impute the missing cells of a data set into the job's output."""
    request = ImputeRequest(**run.request)
    filling = Filling(request.how, tuple(request.columns), request.draws, request.seed)
    return _into_output(workspace, run, request, write_imputed_rows, filling=filling)


def _into_output(
    workspace: Workspace, run: Run, request: ScoreRequest | ImputeRequest, write: Callable[..., JSONObject], **how: Any
) -> JSONObject:
    version = load_served_model(workspace, request.model)
    model = queries.queryable_circuit(version.model)
    rows = open_data_source(
        workspace, request.uris, dataset=request.dataset, is_remote=not run.is_local, schema=model.schema
    )
    warnings: list[str] = []
    output = workspace.layout.job_output(run.job_id)
    create_folder(output.parent)
    threads = available_threads(workspace.settings)
    summary = write(model, rows, output, replace=True, threads=threads, report=run.report, warn=warnings.append, **how)
    return {"model": version.name, "version": version.version, **summary} | ({"warnings": warnings} if warnings else {})


def run_evaluation_step(workspace: Workspace, run: Run) -> JSONObject:
    """Measure a registered version on a data set."""
    request = EvaluateRequest(**run.request)
    version = load_served_model(workspace, request.model)
    rows = open_evaluation_source(workspace, request.uris, request.dataset, run, version.schema, request.columns)
    warnings = scoring.absent_column_warnings(version.model, rows)
    warnings += learned_rows_warnings(workspace, version.name, version.version, rows)
    warnings += later_rows_warnings(workspace, version.name, version.version, version.schema, rows)
    measured = scoring.measure_model(version.model, rows, run.report)
    warnings += measured.warnings
    return {"model": version.name, "version": version.version, **measured.beside_floor} | (
        {"warnings": warnings} if warnings else {}
    )


def evaluate_versions(
    workspace: Workspace,
    references: Sequence[str],
    uris: Sequence[str],
    report: Report = ignore_report,
    *,
    columns: JSONMapping | None = None,
) -> JSONObject:
    """Measure several versions on the same rows, read once per version; InvalidRequest for a model without classes, and for
    models that predict different columns.

    Returns `models`, the metrics of each; `differences`, of each but the first the mean of its log loss less that of the
    first, row by row, with its standard error; `warnings` if there are any.
    """
    models, losses, warnings = [], [], []
    target: str | None = None
    uris = materialise_database_uris(workspace, uris)
    for reference in references:
        version = load_served_model(workspace, reference)
        if version.schema.target is None:
            raise InvalidRequest(f"{reference} predicts no class: evaluate it separately.", field="model")
        target = version.schema.target if target is None else target
        if version.schema.target != target:
            raise InvalidRequest(
                f"{references[0]} predicts {target!r}, and {reference} predicts {version.schema.target!r}: their losses cannot be "
                "compared. Evaluate them separately.",
                field="model",
            )
        rows = apply_schema_null_class(
            open_data_source(workspace, uris, is_remote=False, columns=columns, schema=version.schema), version.schema
        )
        warnings += [f"{reference}: {words}" for words in scoring.absent_column_warnings(version.model, rows)]
        warnings += learned_rows_warnings(workspace, version.name, version.version, rows)
        warnings += later_rows_warnings(workspace, version.name, version.version, version.schema, rows)
        measured = scoring.measure_model(version.model, rows, report)
        warnings += [f"{reference}: {words}" for words in measured.warnings]
        models.append({"model": version.name, "version": version.version, **measured.metrics})
        losses.append(scoring.row_log_losses(measured.scores))
    differences = []
    for own in losses[1:]:
        more = own - losses[0]
        differences.append({"log_loss": float(more.mean()), "standard_error": standard_error(more)})
    return {"models": models, "differences": differences} | ({"warnings": warnings} if warnings else {})


def run_query_step(workspace: Workspace, run: Run) -> JSONObject:
    """Answer queries to a registered version, without a time limit."""
    request = QueryJobRequest(**run.request)
    version, answers = load_served_model(workspace, request.model), list[JSONObject]()
    for number, query in enumerate(request.queries):
        run.report({"stage": "answering", "rows_done": number, "rows_total": len(request.queries), "unit": "queries"})
        answers += queries.answer_model_queries(version.model, [query])
    return {"model": version.name, "version": version.version, "answers": answers}
