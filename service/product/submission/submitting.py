"""Jobs are checked and submitted here, and forgotten once they ended long ago.

Requests bound to fail are refused before they are queued: unknown names, invalid parameters, missing files.
"""

import glob
import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from learners.circuits.errors import NoGraphs
from learners.circuits.model import CircuitModel
from learners.circuits.queries.queries import check
from learners.circuits.variables import Columns, check_left_out
from learners.classifiers.lookup.lookup import LookupModel
from learners.ensembles.model import EnsembleModel
from learners.errors import SourceError, UnknownColumn
from learners.models.model import Model
from learners.models.query import AnyQuery, Query
from learners.orders.model import OrderModel
from learners.registry import recipes
from learners.registry.networks.network_answers import check_all
from learners.registry.networks.of_models import classifier_columns
from learners.schema.overrides import ALL
from service.jobs.logs import log_path
from service.jobs.queue import Job, Priority, job_queue
from service.jobs.steps import check_limits
from service.product.datasets.data_sources import check_roots, files_of, plain, refuse_secrets
from service.product.datasets.registration import check_columns, get_dataset
from service.product.forgetting.forgetting import check_condition
from service.product.inference.queries import NoJoint, of_joint, of_structures, query_columns
from service.product.outputs import Output, check_free, delivering
from service.product.promotion import checked_train
from service.product.train_steps import target_of
from service.product.versions.registry import find_version, served_model
from service.requests.problems import Conflict
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


def submit(
    workspace: Workspace,
    request: AnyRequest,
    idempotency_key: str | None = None,
    *,
    is_remote: bool,
    priority: Priority = "normal",
) -> tuple[Job, bool]:
    """Queue a job after checking what can be checked without reading data; see JobQueue.submit."""
    check_request(workspace, request, is_remote=is_remote)
    check_files(workspace, request, is_remote=is_remote)
    fields = request.model_dump(exclude={"kind"})
    return job_queue(workspace).submit(request.kind, fields, idempotency_key=idempotency_key, priority=priority)


def job_log(workspace: Workspace, job_id: str) -> str:
    """What a job has logged so far, a JSON object a line."""
    path = log_path(workspace.layout.root / "logs", job_queue(workspace).get(job_id).id)
    return path.read_text(encoding="utf-8") if path.exists() else ""


def job_output(workspace: Workspace, job_id: str) -> Path:
    """The Parquet file of rows that a job has written; NotFound if there is no such job, Conflict if it has written none."""
    job = job_queue(workspace).get(job_id)
    path = workspace.layout.job_output(job.id)
    if not path.exists():
        raise Conflict(
            f"Job {job.id!r} ({job.kind}, {job.state}) has no rows: only jobs of kind score and impute have, once they have "
            "succeeded.",
            job=job.id,
        )
    return path


def write_job_output(workspace: Workspace, job_id: str, output: Output, *, replace: bool = False) -> None:
    """Copy the rows that a job has written to a file; InvalidRequest if it exists, or else as `job_output`."""
    written = job_output(workspace, job_id)
    check_free(output, replace=replace)
    with delivering(output, replace=replace) as draft:
        shutil.copyfile(written, draft)


def forget_old_jobs(workspace: Workspace) -> int:
    """Remove jobs that ended long ago, and their logs; returns how many."""
    before, n_forgotten = datetime.now(UTC) - timedelta(days=workspace.settings.job_days), 0
    queue = job_queue(workspace)
    while job_ids := queue.finished_before(before):
        queue.delete(job_ids)
        for job_id in job_ids:
            log_path(workspace.layout.root / "logs", job_id).unlink(missing_ok=True)
            workspace.layout.job_output(job_id).unlink(missing_ok=True)
        n_forgotten += len(job_ids)
    return n_forgotten


def check_request(workspace: Workspace, request: AnyRequest, *, is_remote: bool) -> None:
    """Refuse a job that could only fail, as far as this can be seen without reading data.

    Raises OutsideRoots, NotFound, InvalidParameter, InvalidRequest, UnknownColumn, InvalidEvidence or SchemaError.
    """
    named = checked_train(workspace, request) if isinstance(request, RefreshRequest) else request
    uris = [*(getattr(named, "uris", None) or ()), *(getattr(named, "test_uris", None) or ())]
    uris += files_of(getattr(named, "parameters", {}))
    refuse_secrets(uris)
    if is_remote:
        check_roots(uris, workspace.settings)
    _check_named(workspace, named, is_remote=is_remote)
    check_limits(workspace.settings, request.model_dump())


def _check_named(workspace: Workspace, request: AnyRequest, *, is_remote: bool) -> None:
    """Refuse now what a job could only fail with later, as far as it can be known without reading data.

    Raises NotFound, InvalidParameter, InvalidRequest, UnknownColumn, InvalidEvidence or SchemaError.
    """
    if isinstance(request, ForgetRequest):
        check_condition(workspace, request, is_remote=is_remote)
    for name in {getattr(request, "dataset", None), getattr(request, "test_dataset", None)} - {None}:
        get_dataset(workspace, str(name))
    if isinstance(request, EvaluateRequest):
        find_version(workspace, request.model)
    if isinstance(request, ScoreRequest | ImputeRequest):
        _check_density(served_model(workspace, request.model).model, request)
    if isinstance(request, QueryJobRequest):
        check_queries(served_model(workspace, request.model).model, request.queries)
    if isinstance(request, TrainRequest):
        recipes.parse_parameters(request.learner, request.parameters)
        target_of(workspace, request)


def _check_density(model: Model, request: ScoreRequest | ImputeRequest) -> None:
    """Refuse a model without a joint distribution, and columns to fill that it does not know."""
    own = model.joint if isinstance(model, EnsembleModel) else model
    if not isinstance(own, CircuitModel | LookupModel | OrderModel):
        raise NoJoint(model.kind)
    if isinstance(request, ScoreRequest) and request.average is not None and not isinstance(own, OrderModel):
        raise NoGraphs
    names = [*own.schema.columns]
    for name in request.columns if isinstance(request, ImputeRequest) else ():
        if name not in names:
            check_left_out(own.schema, name)
            raise UnknownColumn(name, names)


def check_files(workspace: Workspace, request: AnyRequest, *, is_remote: bool) -> None:
    """Refuse a job whose files or columns are not there. Not for schedules, whose files may be written later.

    Object stores are not asked whether files are there: a request shall not wait for them. Raises SourceError or
    UnknownColumn.
    """
    for uri in _uris(workspace, request):
        path = plain(uri)
        if "://" in path or "**" in path or Path(path).exists():
            continue
        if not glob.has_magic(path):
            raise SourceError(uri, "no such file or folder.")
        if next(glob.iglob(path, include_hidden=True), None) is None:  # noqa: PTH207 (Path.glob takes no absolute one)
            raise SourceError(uri, "matches no file.")
    train = request.train if isinstance(request, RefreshRequest) else request
    if isinstance(train, TrainRequest) and train.dataset is not None:
        named = [*train.columns, train.timestamp, target_of(workspace, train)]
        columns = [name for name in named if name not in (None, ALL)]
        check_columns(workspace, train.dataset, columns, train.at, is_remote=is_remote)


def _uris(workspace: Workspace, request: AnyRequest) -> Iterator[str]:
    """Where the data of a job come from."""
    named = request.train if isinstance(request, RefreshRequest) else request
    for member in ("uris", "test_uris"):
        yield from getattr(named, member, None) or ()
    yield from files_of(getattr(named, "parameters", {}))
    for member in ("dataset", "test_dataset"):
        if (name := getattr(named, member, None)) is not None:
            yield from get_dataset(workspace, name).uris


def check_queries(model: Model, queries: Sequence[AnyQuery]) -> None:
    """Refuse queries whose columns, values or edges the model has not, without answering them.

    Raises NoJoint, WrongQuery, UnknownColumn, InvalidEvidence, SchemaError, ImpossibleEdges, NotGaussian,
    InvalidParameter or NetworkFileError.
    """
    if isinstance(model, OrderModel):
        for about in of_structures(queries):
            model.graph_queries.check(about)
    joint = of_joint(model, queries)
    check_all(model, joint)
    if joint:
        columns = _columns_of(model, joint)
        check(columns.circuit, columns.schema, joint)


def _columns_of(model: Model, queries: Sequence[Query]) -> Columns:
    """The columns as a circuit has them; of a classifier without its circuit, which may be large and is not made for this."""
    if isinstance(model, EnsembleModel):
        model = model.joint
    return classifier_columns(model) if isinstance(model, LookupModel) else query_columns(model, queries)
