"""A registered version answers: queries, and rows of files, scored or measured."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from learners.query import AnyQuery
from service.jobs.steps import Run
from service.json_values import JSONObject
from service.predictor import map_version
from service.product import queries, scoring
from service.product.data_roots import open_source
from service.product.inspecting import served
from service.product.registry import find_version
from service.requests import EvaluateRequest, QueryJobRequest
from service.workspace import Workspace


def query(workspace: Workspace, reference: str, asked: Sequence[AnyQuery]) -> list[JSONObject]:
    """Ask a model's joint distribution or its posterior over structures, in this process and for as long as it takes."""
    return queries.answers(served(workspace, reference).model, asked)


def predict_files(workspace: Workspace, reference: str, uris: Sequence[str], output: Path, **how: Any) -> int:
    """Score files into one of Parquet; as `scoring.score_files`, returns the number of rows."""
    model = served(workspace, reference).model
    source = open_source(workspace, uris, is_remote=False, schema=model.schema)
    return scoring.score_files(model, source, output, **how)


def evaluate_version(workspace: Workspace, run: Run) -> JSONObject:
    """Measure a registered version on a data set."""
    request = EvaluateRequest(**run.request)
    version = find_version(workspace, request.model)
    model = map_version(version).model
    rows = open_source(
        workspace, request.uris, dataset=request.dataset, is_remote=not run.is_local, schema=model.schema
    )
    warnings = scoring.absences(model, rows)
    metrics = scoring.measure(model, rows, run.report)
    return {"model": version.name, "version": version.version, **metrics} | ({"warnings": warnings} if warnings else {})


def answer_queries(workspace: Workspace, run: Run) -> JSONObject:
    """Ask a registered version, as long as its queries take."""
    request = QueryJobRequest(**run.request)
    version = find_version(workspace, request.model)
    model = map_version(version).model
    found = []
    for number, query in enumerate(request.queries):
        run.report({"stage": "answering", "rows_done": number, "rows_total": len(request.queries)})
        found += queries.answers(model, [query])
    return {"model": version.name, "version": version.version, "answers": found}
