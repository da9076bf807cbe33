"""Requests bound to fail are refused before they are queued: unknown names, invalid parameters, missing files."""

import glob
from collections.abc import Iterator, Sequence
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
from service.jobs.steps import check_limits
from service.product.datasets.data_sources import check_roots, files_of, plain, refuse_secrets
from service.product.datasets.registration import check_columns, get_dataset
from service.product.forgetting.forgetting import check_condition
from service.product.inference.queries import NoJoint, of_joint, of_structures, query_columns
from service.product.promotion import checked_train
from service.product.train_steps import target_of
from service.product.versions.registry import find_version, served_model
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
