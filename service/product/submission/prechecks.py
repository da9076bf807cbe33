"""Checks before queueing: requests bound to fail are refused, for unknown names, invalid parameters or missing files."""

import glob
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from learners.errors import SourceError
from learners.passes.sources.file_access import ANYWHERE, Look, TooMuchToLookThrough
from learners.passes.sources.path_expansion import first_match
from learners.registry import recipes
from learners.schema.overrides import ALL
from service.jobs.job_limits import check_job_limits
from service.product.datasets.data_sources import (
    check_data_roots,
    check_stored_size,
    check_uri_secrets,
    file_uri_to_path,
    learner_parameter_files,
    remote_file_access,
)
from service.product.datasets.dataset_schema import check_dataset_columns
from service.product.datasets.registration import get_dataset
from service.product.forgetting.forgetting import check_forget_condition
from service.product.train_steps import training_target
from service.product.versions.registry import find_version, load_served_model
from service.requests.requests import (
    AnyRequest,
    EvaluateRequest,
    ForgetRequest,
    ImputeRequest,
    QueryJobRequest,
    RefreshRequest,
    ScoreRequest,
    TrainRequest,
)
from service.workspace import Workspace

FIRST_LOOK = 1_000  # entries of folders, before a job is queued: a tenth of a second where all are links


def check_job_request(workspace: Workspace, request: AnyRequest, *, is_remote: bool) -> None:
    """Refuse a job that must fail, if this is evident without reading data.

    Raises OutsideRoots, NotFound, InvalidParameter, InvalidRequest, UnknownColumn, InvalidEvidence or SchemaError.
    """
    named: AnyRequest = request
    if isinstance(request, RefreshRequest):
        from service.product.promotion import checked_refresh_training  # which loads what serves and monitors

        named = checked_refresh_training(workspace, request)
    uris = [*(getattr(named, "uris", None) or ()), *(getattr(named, "test_uris", None) or ())]
    uris += learner_parameter_files(getattr(named, "parameters", {}))
    if is_remote:
        check_stored_size(request)
    check_uri_secrets(uris)
    if is_remote:
        check_data_roots(uris, workspace.settings)
    _check_named(workspace, named, is_remote=is_remote)
    check_job_limits(workspace.settings, request.model_dump())


def _check_named(workspace: Workspace, request: AnyRequest, *, is_remote: bool) -> None:
    """Refuse a job that names unknown data sets, models or columns, as far as can be known without reading data.

    Raises NotFound, InvalidParameter, InvalidRequest, UnknownColumn, InvalidEvidence or SchemaError.
    """
    if isinstance(request, ForgetRequest):
        check_forget_condition(workspace, request, is_remote=is_remote)
    for name in {getattr(request, "dataset", None), getattr(request, "test_dataset", None)} - {None}:
        get_dataset(workspace, str(name))
    if isinstance(request, EvaluateRequest):
        find_version(workspace, request.model)
    if isinstance(request, ScoreRequest | ImputeRequest):
        from service.product.inference.query_checks import check_density_request

        check_density_request(load_served_model(workspace, request.model).model, request)
    if isinstance(request, QueryJobRequest):
        from service.product.inference.query_checks import check_queries

        check_queries(load_served_model(workspace, request.model).model, request.queries)
    if isinstance(request, TrainRequest):
        recipes.parse_learner_parameters(request.learner, request.parameters)
        training_target(workspace, request)


def check_job_files(workspace: Workspace, request: AnyRequest, *, is_remote: bool) -> None:
    """Refuse a job whose files or columns are missing.

    The existence of files in object stores is not checked: a request shall not wait for them. Raises SourceError or
    UnknownColumn.
    """
    access = remote_file_access(workspace.settings) if is_remote else ANYWHERE
    look = Look(replace(access, most_entries=min(access.most_entries, FIRST_LOOK)))
    try:
        for uri in _uris(workspace, request):
            check_local_uri_exists(uri, look)
    except TooMuchToLookThrough:
        if access.most_entries <= FIRST_LOOK:  # else the job tells, which keeps nobody waiting
            raise
    train = request.train if isinstance(request, RefreshRequest) else request
    if isinstance(train, TrainRequest) and train.dataset is not None:
        named = [*train.columns, train.timestamp, training_target(workspace, train)]
        columns = [name for name in named if name not in (None, ALL)]
        check_dataset_columns(workspace, train.dataset, columns, train.at, is_remote=is_remote)


def check_local_uri_exists(uri: str, look: Look | None = None) -> None:
    """Refuse a local path or pattern that matches nothing or that the system refuses to read (SourceError).

    `look` sets which folders may be searched and how far, for all URIs of a request.
    """
    path = file_uri_to_path(uri)
    try:
        if "://" in path or "**" in path or Path(path).exists():
            return
        is_there = glob.has_magic(path) and first_match(path, look or Look()) is not None
    except SourceError:
        raise
    except OSError as error:  # the name is too long, or a folder is closed to this user
        raise SourceError(uri, f"cannot be read ({error.strerror}).") from error
    if not is_there:
        raise SourceError(uri, "matches no file." if glob.has_magic(path) else "no such file or folder.")


def _uris(workspace: Workspace, request: AnyRequest) -> Iterator[str]:
    """Yield the URIs of a job's data."""
    named = request.train if isinstance(request, RefreshRequest) else request
    for member in ("uris", "test_uris"):
        yield from getattr(named, member, None) or ()
    yield from learner_parameter_files(getattr(named, "parameters", {}))
    for member in ("dataset", "test_dataset"):
        if (name := getattr(named, member, None)) is not None:
            yield from get_dataset(workspace, name).uris
