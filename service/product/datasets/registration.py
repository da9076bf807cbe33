"""Registered data sets: files under a name, with what one pass finds of their columns; uploaded files, and an example."""

import json
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from learners.errors import UnknownColumn
from learners.passes.column_summaries import ColumnSummaries
from learners.passes.engine import collect
from learners.passes.row_rules import apply_null_class_rule, apply_row_weight_rule
from learners.passes.sources.csv.types import declared_text_types
from learners.passes.sources.source import Source
from learners.schema import Schema
from learners.schema.schema import MAX_CLASSES
from service.jobs import children
from service.jobs.steps import Report, Run, ignore_report, progress_reporter
from service.product.child_process import run_in_child_process
from service.product.datasets.data_sources import check_data_roots, open_data_source
from service.product.datasets.dataset_statistics import (
    RULES,
    load_column_order,
    read_forgetting_rules,
    remove_dataset_statistics,
    save_column_order,
    source_file_record,
)
from service.product.datasets.training_rows import check_forgetting_rules
from service.requests.json_values import JSONMapping, JSONObject
from service.requests.problems import InvalidRequest
from service.requests.requests import DatasetRequest, SchemaRequest
from service.settings import available_threads
from service.workspace import Workspace, bind_control_to_workspace
from storage.datasets import dataset_definitions
from storage.datasets.dataset_definitions import Dataset
from storage.errors import NotFound
from storage.files.atomic_files import write_file_atomically
from storage.files.workspace_layout import checked_resource_name

FOLDER = "uploads"
FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,127}")
EXAMPLE, EXAMPLE_ROWS = "customers", 4_000
TARGET = "customer"

get_dataset = bind_control_to_workspace(dataset_definitions.get_dataset)
list_datasets = bind_control_to_workspace(dataset_definitions.list_datasets)


def register_dataset(workspace: Workspace, request: DatasetRequest, *, is_remote: bool = False) -> Dataset:
    """Register files after opening them; a small data set gets its schema at once.

    The data roots bind a request over REST, which `is_remote`. Raises OutsideRoots, SourceError, UnknownColumn, SchemaError,
    Conflict or storage.errors.Conflict.
    """
    control = workspace.control
    if is_remote and not children.is_child:  # a server reads nothing itself
        limit = workspace.settings.request_timeout_s
        return run_in_child_process(workspace, partial(register_dataset, is_remote=True), request, time_limit_s=limit)
    source = open_data_source(workspace, request.uris, is_remote=is_remote, columns=request.columns)
    if request.target is not None and request.target not in source.arrow_schema.names:
        raise UnknownColumn(request.target, source.arrow_schema.names)
    place = workspace.layout.dataset_directory(request.name)
    # What a deletion that was interrupted has left is of other files.
    if not dataset_definitions.is_registered_dataset(control, request.name):
        remove_dataset_statistics(place)
    check_forgetting_rules(read_forgetting_rules(workspace, place / RULES), request.name, source)
    # A data set that nothing can be learned from is refused here, not by the first job.
    source, schema = source.ordered(load_column_order(workspace, request.name)), None
    # A pass is made at once, while somebody waits, over few cells.
    if source.n_rows * len(source.arrow_schema) <= workspace.settings.inline_schema_cells:
        schema = infer_schema_of_source(
            source, request.target, request.columns, available_threads(workspace.settings), ignore_report
        )
    files = tuple(map(source_file_record, source.files))
    definition = Dataset(request.name, tuple(request.uris), request.target, request.columns, files=files)
    dataset = dataset_definitions.register_dataset(control, definition)
    save_column_order(workspace, request.name, source)
    if schema is None:
        return dataset
    dataset_definitions.set_dataset_schema(control, request.name, schema.to_json(), list(files))
    return dataset_definitions.get_dataset(control, request.name)


def delete_dataset(workspace: Workspace, name: str) -> None:
    """Forget a data set and what was counted of it; its files, its rules of forgotten rows and its models stay."""
    dataset_definitions.delete_dataset(workspace.control, name)
    remove_dataset_statistics(workspace.layout.dataset_directory(name))


def dataset_or_model_kind(workspace: Workspace, name: str) -> Literal["dataset", "model"]:
    """Whether a name is a data set's; else it is a model's."""
    try:
        get_dataset(workspace, name)
    except NotFound:
        return "model"
    return "dataset"


def dataset_columns(workspace: Workspace, name: str) -> Sequence[str]:
    """The columns of a registered data set, in order, as far as known without reading its files (NotFound, CorruptFile)."""
    get_dataset(workspace, name)
    return load_column_order(workspace, name)


def check_dataset_columns(
    workspace: Workspace, name: str, columns: Sequence[str], at: str | None, *, is_remote: bool
) -> None:
    """Refuse columns that a registered data set has not.

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
    """The schema of a data set, as JSON; InvalidRequest if no pass has been made over the data yet."""
    text = get_dataset(workspace, name).schema_json
    if text is None:
        raise InvalidRequest(
            f"The schema of data set {name!r} is not known yet: submit a job of kind 'schema', or train.", dataset=name
        )
    return dict(json.loads(text))


def infer_dataset_schema(workspace: Workspace, run: Run) -> JSONObject:
    """Infer the schema of a registered data set in one pass, and keep it with the list of its files."""
    name = SchemaRequest(**run.request).dataset
    dataset = get_dataset(workspace, name)
    source = open_data_source(workspace, dataset=name, is_remote=not run.is_local)
    threads = available_threads(workspace.settings)
    schema = infer_schema_of_source(source, dataset.target, dataset.columns, threads, run.report)
    files = [source_file_record(file) for file in source.files]
    dataset_definitions.set_dataset_schema(workspace.control, name, schema.to_json(), files)
    return {"dataset": name, "n_rows": source.n_rows, "n_attributes": schema.n_attributes}


def infer_schema_of_files(uris: Sequence[str], target: str | None, columns: JSONMapping, report: Report) -> Schema:
    """The schema of files that are not registered."""
    source = Source.open(list(uris), types=declared_text_types(None, columns))
    return infer_schema_of_source(source, target, columns, None, report)


def infer_schema_of_source(
    source: Source, target: str | None, columns: JSONMapping, threads: int | None, report: Report
) -> Schema:
    """The schema of rows, in one pass."""
    source = apply_row_weight_rule(apply_null_class_rule(source, target, columns), columns)
    summaries = ColumnSummaries(target, dict(columns), max_classes=MAX_CLASSES)
    return collect(summaries, source, threads=threads, on_progress=progress_reporter(report), n_passes=1).build_schema()


def upload_folder(workspace: Workspace) -> Path | None:
    """Where uploaded files go: below the first data root that is a folder; without keys and roots, in the workspace; or nowhere."""
    settings = workspace.settings
    roots = [root for root in settings.data_roots if "://" not in root]
    if not roots and (settings.data_roots or settings.needs_keys):
        return None
    return Path(roots[0] if roots else settings.workspace).absolute() / FOLDER


def dataset_upload_path(workspace: Workspace, name: str, file: str) -> Path:
    """Where the file of a data set is to be uploaded; InvalidName, or InvalidRequest without a folder that may be read."""
    checked_resource_name("dataset", name)
    if not FILE.fullmatch(file):
        raise InvalidRequest(
            f"{file!r} is no name for a file here: use letters, digits, '.', '_', '-' and spaces, at most 128, and begin with a "
            "letter or digit.",
            field="file",
        )
    folder, settings = upload_folder(workspace), workspace.settings
    if folder is None:
        raise InvalidRequest(
            "There is no folder for uploaded files: FEWPASS_DATA_ROOTS names none on this machine. Add one, "
            "as in FEWPASS_DATA_ROOTS='[\"/data/tables\"]'."
        )
    place = folder / name / file
    check_data_roots([str(place)], settings)
    return place


def register_example_dataset(workspace: Workspace) -> Dataset:
    """Register the example's table, written if it is not there; repeated, nothing changes. InvalidRequest, Conflict."""
    try:
        return get_dataset(workspace, EXAMPLE)
    except NotFound:
        place = dataset_upload_path(workspace, EXAMPLE, f"{EXAMPLE}.parquet")
    if not place.exists():
        with write_file_atomically(place) as draft:
            pq.write_table(draw_example_customers(EXAMPLE_ROWS, 1), draft)
    request = DatasetRequest(name=EXAMPLE, uris=[str(place)], target=TARGET)
    return register_dataset(workspace, request, is_remote=True)


def draw_example_customers(n_rows: int, seed: int) -> pa.Table:
    """Customers who leave or stay, a row each, drawn by `seed`.

    The columns are contract, months, internet, calls, payment, price and the class `customer`.
    """
    rng = np.random.default_rng(seed)
    contract = rng.choice(["monthly", "one year", "two years"], n_rows, p=[0.5, 0.3, 0.2])
    months = rng.gamma(np.where(contract == "monthly", 1.5, 4.0), 8.0).round()
    internet = rng.choice(["fibre", "cable", "none"], n_rows, p=[0.45, 0.4, 0.15])
    calls = rng.poisson(np.where(internet == "fibre", 2.2, 0.9))
    payment = np.where(rng.random(n_rows) < np.where(months > 20, 0.7, 0.3), "card", "invoice")
    price = (15 + 40 * (internet == "fibre") + 20 * (internet == "cable") + rng.normal(0, 5, n_rows)).round(1)
    score = -2.2 + 1.6 * (contract == "monthly") + 0.45 * calls - 0.04 * months + 0.5 * (payment == "invoice")
    leaves = np.where(rng.random(n_rows) < 1 / (1 + np.exp(-score)), "leaves", "stays")
    return pa.table(
        {
            "contract": contract,
            "months": months,
            "internet": internet,
            "calls": calls,
            "payment": payment,
            "price": price,
            "customer": leaves,
        }
    )
