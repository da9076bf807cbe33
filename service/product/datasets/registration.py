"""Registered data sets: files under a name."""

import contextlib
import threading
from collections.abc import Iterator
from functools import partial

from learners.errors import UnknownColumn
from service.jobs import children
from service.jobs.steps import ignore_report
from service.product.child_process import run_in_child_process
from service.product.datasets.data_sources import check_stored_size, open_data_source
from service.product.datasets.dataset_schema import infer_schema_of_source
from service.product.datasets.dataset_statistics import (
    RULES,
    load_column_order,
    remove_dataset_statistics,
    save_column_order,
    source_file_record,
)
from service.product.datasets.forgotten_rows import check_forgetting_rules, read_forgetting_rules
from service.requests.abandonment import check_still_asked
from service.requests.requests import DatasetRequest
from service.settings import available_threads
from service.workspace import Workspace, bind_control_to_workspace
from storage.datasets import dataset_definitions
from storage.datasets.dataset_definitions import Dataset

LOOK_S = 0.5
_registering = threading.Condition()
_names: set[str] = set()  # that are being registered

get_dataset = bind_control_to_workspace(dataset_definitions.get_dataset)
list_datasets = bind_control_to_workspace(dataset_definitions.list_datasets)


def register_dataset(workspace: Workspace, request: DatasetRequest, *, is_remote: bool = False) -> Dataset:
    """Register files after opening them; the schema of a small data set is inferred at once.

    The data roots bind a request over REST, which `is_remote`. Raises OutsideRoots, SourceError, UnknownColumn, SchemaError,
    Conflict or storage.errors.Conflict.
    """
    control = workspace.control
    if is_remote and not children.is_child:  # a server reads nothing itself
        check_stored_size(request)
        limit = workspace.settings.request_timeout_s
        with _one_at_a_time(request.name):
            return run_in_child_process(
                workspace, partial(register_dataset, is_remote=True), request, time_limit_s=limit
            )
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


@contextlib.contextmanager
def _one_at_a_time(name: str) -> Iterator[None]:
    """Hold the registration of a name in this process: concurrent ones would each start a process for the same answer."""
    while True:
        with _registering:
            if name not in _names:
                _names.add(name)
                break
            _registering.wait(LOOK_S)
        check_still_asked()
    try:
        yield
    finally:
        with _registering:
            _names.discard(name)
            _registering.notify_all()


def delete_dataset(workspace: Workspace, name: str) -> None:
    """Delete a data set and its statistics; its files, its rules of forgotten rows and its models stay."""
    dataset_definitions.delete_dataset(workspace.control, name)
    remove_dataset_statistics(workspace.layout.dataset_directory(name))
