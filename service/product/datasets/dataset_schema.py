"""Schemas of data sets and files, inferred in one pass."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from learners.errors import SchemaError, UnknownColumn
from learners.passes.column_summaries import ColumnSummaries
from learners.passes.engine import collect
from learners.passes.row_rules import apply_null_class_rule, apply_row_weight_rule
from learners.passes.sources.csv.types import declared_text_types, missing_value_hints
from learners.passes.sources.row_filter import Selection
from learners.passes.sources.source import Source
from learners.schema import Schema
from learners.schema.schema import MAX_CLASSES
from service.jobs import children
from service.jobs.steps import Report, Run, progress_reporter
from service.product.child_process import run_in_child_process
from service.product.datasets.data_sources import open_data_source
from service.product.datasets.dataset_statistics import RULES, load_column_order, source_file_record
from service.product.datasets.forgotten_rows import forgetting_rules_of_files, select_unforgotten_rows
from service.requests.json_values import JSONMapping, JSONObject
from service.requests.problems import InvalidRequest
from service.requests.requests import SchemaRequest
from service.settings import available_threads
from service.workspace import Workspace
from storage.datasets import dataset_definitions
from storage.datasets.predicates import RowPredicate
from storage.errors import NotFound


def dataset_or_model_kind(workspace: Workspace, name: str) -> Literal["dataset", "model"]:
    """Return "dataset" if the name is a data set's, else "model"."""
    try:
        dataset_definitions.get_dataset(workspace.control, name)
    except NotFound:
        return "model"
    return "dataset"


def dataset_columns(workspace: Workspace, name: str) -> Sequence[str]:
    """Return the columns of a registered data set in order, as known without reading its files (NotFound, CorruptFile)."""
    dataset_definitions.get_dataset(workspace.control, name)
    return load_column_order(workspace, name)


def check_dataset_columns(
    workspace: Workspace, name: str, columns: Sequence[str], at: str | None, *, is_remote: bool
) -> None:
    """Refuse columns that a registered data set does not have.

    Its files may have changed since its columns were noted, so they are opened before a column is refused. Raises
    NotFound, CorruptFile, OutsideRoots, SourceError or UnknownColumn.
    """
    if set(columns) <= set(dataset_columns(workspace, name)):
        return
    if is_remote and not children.is_child:  # a server reads nothing itself
        limit = workspace.settings.request_timeout_s
        run_in_child_process(
            workspace, partial(check_dataset_columns, is_remote=True), name, columns, at, time_limit_s=limit
        )
        return
    names = open_data_source(workspace, dataset=name, is_remote=is_remote, at=at).arrow_schema.names
    for column in columns:
        if column not in names:
            raise UnknownColumn(column, names)


def dataset_schema(workspace: Workspace, name: str) -> JSONObject:
    """Return the schema of a data set as JSON; InvalidRequest before the first pass over the data."""
    text = dataset_definitions.get_dataset(workspace.control, name).schema_json
    if text is None:
        raise InvalidRequest(
            f"The schema of data set {name!r} has not been inferred yet: submit a job of kind 'schema', or train.",
            dataset=name,
        )
    return dict(json.loads(text))


def infer_dataset_schema(workspace: Workspace, run: Run) -> JSONObject:
    """Infer the schema of a registered data set in one pass, without forgotten rows, and store it with the list of its
    files.
    """
    name = SchemaRequest(**run.request).dataset
    dataset = dataset_definitions.get_dataset(workspace.control, name)
    source = open_data_source(workspace, dataset=name, is_remote=not run.is_local)
    threads = available_threads(workspace.settings)
    forgotten = forgetting_rules_of_files(workspace, source, workspace.layout.dataset_directory(name) / RULES)
    whole = Selection(source, dict.fromkeys(range(len(source.files)), ()))
    rules = [RowPredicate(rule.where) for rule in forgotten.rules()]
    rows = select_unforgotten_rows(whole, rules, forgotten, run.report).source
    schema = infer_schema_of_source(rows, dataset.target, dataset.columns, threads, run.report)
    files = [source_file_record(file) for file in source.files]
    dataset_definitions.set_dataset_schema(workspace.control, name, schema.to_json(), files)
    return {"dataset": name, "n_rows": source.n_rows, "n_attributes": schema.n_attributes}


def infer_schema_of_files(
    uris: Sequence[str], target: str | None, columns: JSONMapping, report: Report, warn: Callable[[str], None]
) -> Schema:
    """Infer the schema of unregistered files; `warn` gets the hints that training would give."""
    source = Source.open(list(uris), types=declared_text_types(None, columns))
    try:
        schema = infer_schema_of_source(source, target, columns, None, report)
    except SchemaError as error:
        error.args = (" ".join([str(error), *source.hints[:3], *source.all_settings(columns, error.columns)]),)
        raise
    for hint in [*source.hints, *source.all_settings(columns)]:
        warn(hint)
    hinted = {name for file in source.files for hint in file.hints.values() for name in hint.columns}
    texts = [one for one in schema.attributes if one.name not in hinted]
    for hint in missing_value_hints(texts, [file.path for file in source.files]):
        warn(hint)
    return schema


def infer_schema_of_source(
    source: Source, target: str | None, columns: JSONMapping, threads: int | None, report: Report
) -> Schema:
    """Infer the schema of a source in one pass."""
    source = apply_row_weight_rule(apply_null_class_rule(source, target, columns), columns)
    summaries = ColumnSummaries(target, dict(columns), max_classes=MAX_CLASSES)
    collect_all = partial(collect, threads=threads, on_progress=progress_reporter(report), n_passes=1)
    return collect_all(summaries, source).build_schema(by_name=False)
