"""What each kind of job does, step by step: a worker runs the steps durably, a command runs them in its own process."""

import uuid
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from service.jobs.limits import OwnLimits, limits_of
from service.jobs.steps import LOCAL, Kinds, clean, run_now
from service.product.datasets.database_rows import with_rows_of_databases
from service.product.datasets.datasets import summarise
from service.product.forgetting.forgetting import forget_steps
from service.product.inference.answering import answer_queries, evaluate_version, impute_rows, score_rows
from service.product.progress import Report, silent
from service.product.promotion.promotion import refresh_steps
from service.product.submission.prechecks import check_request
from service.product.training.training import train_steps
from service.requests.json_values import JSONObject
from service.requests.requests import EvaluateRequest, ForgetRequest, TrainRequest
from service.workspace import Workspace
from storage.models import models
from storage.models.models import ModelVersion

Request = TypeVar("Request", TrainRequest, EvaluateRequest)


def job_kinds(workspace: Workspace) -> Kinds:
    """The steps of every kind of job."""
    return {
        "train": train_steps(workspace),
        "refresh": refresh_steps(workspace),
        "forget": forget_steps(workspace),
        "query": {"answer": partial(answer_queries, workspace)},
        "evaluate": {"evaluate": partial(evaluate_version, workspace)},
        "score": {"score": partial(score_rows, workspace)},
        "impute": {"impute": partial(impute_rows, workspace)},
        "schema": {"summarise": partial(summarise, workspace)},
    }


def train(workspace: Workspace, request: TrainRequest, report: Report = silent) -> ModelVersion:
    """Train in this process and add the version to the registry; Cancelled, raised in `report` between chunks, stops it."""
    return train_with_passes(workspace, request, report)[0]


def train_with_passes(
    workspace: Workspace, request: TrainRequest, report: Report = silent, warn: Callable[[str], None] = silent
) -> tuple[ModelVersion, list[JSONObject]]:
    """As `train`, with what was read and reused for each statistic; `warn` hears of left-out columns and folded values."""
    published = _run_here(workspace, "train", _with_rows(workspace, request), report)
    version = models.get_version(workspace.control, published["model"], str(published["version"]))
    for warning in published.get("warnings", []):
        warn(warning)
    return version, published["passes"]


def evaluate(workspace: Workspace, request: EvaluateRequest, report: Report = silent) -> JSONObject:
    """Measure a model version on a data set, in this process."""
    steps = job_kinds(workspace)["evaluate"]
    return run_now(steps, f"{LOCAL}{uuid.uuid4().hex[:12]}", _with_rows(workspace, request).model_dump(), report)


def _with_rows(workspace: Workspace, request: Request) -> Request:
    """The request with the rows of its databases as files."""
    named = {name: getattr(request, name, None) for name in ("uris", "test_uris")}
    return request.model_copy(
        update={name: with_rows_of_databases(workspace, uris) for name, uris in named.items() if uris}
    )


def forget(workspace: Workspace, request: ForgetRequest, report: Report = silent) -> JSONObject:
    """Take rows out of the data that models are trained on, and out of the models, in this process."""
    check_request(workspace, request, is_remote=False)
    return _run_here(workspace, "forget", request, report)


def _run_here(workspace: Workspace, kind: str, request: TrainRequest | ForgetRequest, report: Report) -> JSONObject:
    job_id, fields = f"{LOCAL}{uuid.uuid4().hex[:12]}", request.model_dump()
    own = OwnLimits(limits_of(workspace.settings, fields))

    def checked(progress: JSONObject) -> None:
        own.check()
        report(progress)

    try:
        return run_now(job_kinds(workspace)[kind], job_id, fields, checked, own.limits.memory)
    finally:
        clean(workspace.layout, job_id)
