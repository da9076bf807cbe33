"""Steps of each kind of job: a worker runs them durably, a command in its own process."""

import uuid
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from learners.registry.lazy_imports import deferred
from service.jobs.job_limits import OwnLimits, job_limits
from service.jobs.steps import LOCAL, Kinds, Report, Steps, ignore_report, local_scratch, run_job_steps
from service.product.datasets.data_sources import materialise_database_uris
from service.product.datasets.dataset_schema import infer_dataset_schema
from service.product.networks_first import networks_first
from service.product.train_steps import train_steps
from service.requests.json_values import JSONObject
from service.requests.requests import EvaluateRequest, ForgetRequest, TrainRequest
from service.workspace import Workspace
from storage.models import model_versions
from storage.models.model_versions import ModelVersion

Request = TypeVar("Request", TrainRequest, EvaluateRequest)


def _single_step(name: str, place: str) -> Callable[[Workspace], Steps]:
    """Return the steps of a job of one step, which is imported from "module:function" when it is needed."""
    step = deferred(place)
    return lambda workspace: {name: partial(step, workspace)}


# A training loads neither what answers queries nor what forgets.
_INFERENCE = "service.product.inference.inference_steps"
KINDS: dict[str, Callable[[Workspace], Steps]] = {
    "train": lambda workspace: networks_first(workspace, train_steps(workspace)),
    "refresh": deferred("service.product.promotion:refresh_steps"),
    "forget": deferred("service.product.forgetting.forgetting:forget_steps"),
    "query": _single_step("answer", f"{_INFERENCE}:run_query_step"),
    "evaluate": _single_step("evaluate", f"{_INFERENCE}:run_evaluation_step"),
    "score": _single_step("score", f"{_INFERENCE}:run_scoring_step"),
    "impute": _single_step("impute", f"{_INFERENCE}:run_imputation_step"),
    "schema": lambda workspace: {"summarise": partial(infer_dataset_schema, workspace)},
}


def job_steps_by_kind(workspace: Workspace) -> Kinds:
    """Return the steps of every kind of job."""
    return {kind: steps(workspace) for kind, steps in KINDS.items()}


def train_model_version(workspace: Workspace, request: TrainRequest, report: Report = ignore_report) -> ModelVersion:
    """Train in this process and add the version to the registry; `report` can stop it between chunks by raising
    Cancelled.
    """
    return train_and_report_passes(workspace, request, report)[0]


def train_and_report_passes(
    workspace: Workspace,
    request: TrainRequest,
    report: Report = ignore_report,
    warn: Callable[[str], None] = ignore_report,
) -> tuple[ModelVersion, list[JSONObject]]:
    """Train as `train_model_version`, and return also the rows read and reused for each statistic; `warn` receives
    excluded columns and merged values.
    """
    published = _run_here(workspace, "train", _with_rows(workspace, request), report)
    version = model_versions.get_version(workspace.control, published["model"], str(published["version"]))
    for warning in published.get("warnings", []):
        warn(warning)
    return version, published["passes"]


def evaluate_model_version(
    workspace: Workspace, request: EvaluateRequest, report: Report = ignore_report
) -> JSONObject:
    """Measure a model version on a data set, in this process."""
    steps = KINDS["evaluate"](workspace)
    return run_job_steps(steps, f"{LOCAL}{uuid.uuid4().hex[:12]}", _with_rows(workspace, request).model_dump(), report)


def _with_rows(workspace: Workspace, request: Request) -> Request:
    """Return the request with database URIs replaced by files of their rows."""
    named = {name: getattr(request, name, None) for name in ("uris", "test_uris")}
    return request.model_copy(
        update={name: materialise_database_uris(workspace, uris) for name, uris in named.items() if uris}
    )


def forget_rows(workspace: Workspace, request: ForgetRequest, report: Report = ignore_report) -> JSONObject:
    """Remove rows from training data and from the models trained on it, in this process."""
    from service.product.submission.prechecks import check_job_request

    check_job_request(workspace, request, is_remote=False)
    return _run_here(workspace, "forget", request, report)


def _run_here(workspace: Workspace, kind: str, request: TrainRequest | ForgetRequest, report: Report) -> JSONObject:
    job_id, fields = f"{LOCAL}{uuid.uuid4().hex[:12]}", request.model_dump()
    own = OwnLimits(job_limits(workspace.settings, fields))

    def checked(progress: JSONObject) -> None:
        own.check()
        report(progress)

    with local_scratch(workspace.layout, job_id):
        return run_job_steps(KINDS[kind](workspace), job_id, fields, checked, own.limits.memory)
