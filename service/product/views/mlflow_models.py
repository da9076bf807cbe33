"""MLflow models: a registered version is logged to MLflow, and imported from the file that was logged."""

import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from learners.errors import LearnerError, one_line_error_text, redact_uri_secrets
from learners.models.model import Model
from learners.registry.model_kinds import kind_of
from service.product.versions.evaluation_records import load_model_report
from service.product.versions.export_import import import_version, write_export
from service.product.versions.registry import find_version
from service.product.views.reports import report_page
from service.requests.problems import InvalidRequest
from service.serving.predictor import map_model_version
from service.version import VERSION
from service.workspace import Workspace
from storage.models.model_versions import ModelVersion

LOADER = "fewpass.mlflow"  # stands in every model that was logged: MLflow imports it
FILE = "model.fewpass"
LOG_LIKELIHOOD = "log_likelihood"
REGISTERED = "models:/"


class MLflowMissing(LearnerError, ImportError):
    """Raised if MLflow is not installed."""

    def __init__(self) -> None:
        super().__init__("MLflow is not installed: pip install 'fewpass[mlflow]'.")


class MLflowRefused(LearnerError, ValueError):
    """Raised if MLflow has no such model or does not answer."""

    def __init__(self, uri: str, error: Exception) -> None:
        super().__init__(
            f"{redact_uri_secrets(uri)}: MLflow says: {one_line_error_text(error)} Check the name and the registry (MLFLOW_TRACKING_URI)."
        )


class NotOurs(LearnerError, ValueError):
    """Raised for an MLflow model that fewpass did not log."""

    def __init__(self, uri: str) -> None:
        super().__init__(
            f"{redact_uri_secrets(uri)} was not logged by fewpass.mlflow.log_model. Load it with mlflow.pyfunc.load_model."
        )


class NoAnswers(LearnerError, TypeError):
    """Raised for a model that does not answer single rows."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} answers queries only, so MLflow cannot serve it. Log the file that `save` or `fewpass models export` writes with "
            "mlflow.log_artifact."
        )


def import_mlflow() -> Any:
    """Import MLflow; `MLflowMissing` if it is not installed."""
    try:
        import mlflow.pyfunc
    except ImportError as error:
        raise MLflowMissing from error
    return mlflow


def log_model_to_mlflow(path: Path, model: Model, name: str, registered_model_name: str | None, **more: Any) -> Any:
    """Log a model file to the active run as a `pyfunc`; return MLflow's `ModelInfo`."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*input example was not provided")  # the signature is of the model itself
        return import_mlflow().pyfunc.log_model(
            name=name,
            loader_module=LOADER,
            data_path=str(path),
            registered_model_name=registered_model_name,
            **({"pip_requirements": [f"fewpass=={VERSION}"], "signature": _signature(model)} | more),
        )


def log_training_to_mlflow(
    learner: str, parameters: Mapping[str, object], n_rows: int, metrics: Mapping[str, object]
) -> None:
    """Log the facts of a training to the active run; only numeric metrics are logged."""
    mlflow = import_mlflow()
    mlflow.log_params({"learner": learner} | {name: str(value) for name, value in parameters.items()})
    numbers = {name: float(value) for name, value in metrics.items() if isinstance(value, int | float)}
    mlflow.log_metrics({"n_rows": float(n_rows)} | numbers)


@contextmanager
def downloaded_mlflow_model(uri: str) -> Iterator[Path]:
    """Provide the file of a logged model in a temporary folder (MLflowMissing, MLflowRefused); NotOurs if fewpass did
    not log it.
    """
    mlflow = import_mlflow()
    with tempfile.TemporaryDirectory() as own:
        with _refusals(uri):
            folder = Path(mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path=own))
            flavor = mlflow.models.Model.load(str(folder)).flavors.get("python_function", {})
        if flavor.get("loader_module") != LOADER:
            raise NotOurs(uri)
        yield folder / str(flavor.get("data"))


def export_to_mlflow(workspace: Workspace, reference: str, address: str) -> tuple[ModelVersion, str]:
    """Register a version in MLflow, in a run with its parameters, metrics and stored report.

    The address `models:/NAME` is of the registry that MLflow's own settings name. Returns the version, and its address there,
    `models:/NAME/NUMBER`. Raises InvalidRequest of another address; NoAnswers if the model answers no rows; MLflowMissing or
    MLflowRefused.
    """
    name = address.removeprefix(REGISTERED)
    if not address.startswith(REGISTERED) or not name or set("/@") & set(name):
        raise InvalidRequest(f"{address} does not name a model. Write models:/NAME; MLflow assigns the version number.")
    mlflow = import_mlflow()
    version = find_version(workspace, reference)
    own, model = f"{version.name}@{version.version}", map_model_version(version).model
    if kind_of(model).can("structures"):
        raise NoAnswers(own)
    report = load_model_report(version)
    with tempfile.TemporaryDirectory() as folder:
        write_export(workspace, own, Path(folder) / FILE)
        with _refusals(address), mlflow.start_run(run_name=own):
            log_training_to_mlflow(version.learner, version.parameters, version.n_rows, version.metrics)
            mlflow.set_tags({"fewpass": own} | dict(version.tags))
            if report is not None:
                call = f"fewpass predict {own} FILES -o answers.parquet"
                mlflow.log_text(report_page(report, title=own, learner=version.learner, call=call), "report.html")
                mlflow.set_tag("verdict", report.verdict)
            info = log_model_to_mlflow(Path(folder) / FILE, model, "model", name)
    return version, f"{REGISTERED}{name}/{info.registered_model_version}"


def import_from_mlflow(workspace: Workspace, uri: str, name: str | None = None) -> ModelVersion:
    """Register a model that fewpass logged to MLflow, as `import_version`; MLflowMissing, MLflowRefused, NotOurs,
    CorruptFile.
    """
    with downloaded_mlflow_model(uri) as path:
        return import_version(workspace, path, name)


@contextmanager
def _refusals(uri: str) -> Iterator[None]:
    from mlflow.exceptions import MlflowException

    try:
        yield
    except (MlflowException, OSError) as error:  # the latter of requests, and of artifacts that are files
        raise MLflowRefused(uri, error) from error


def _signature(model: Model) -> Any:
    """Return the MLflow signature: input columns, each optional, and output columns."""
    from mlflow.models import ModelSignature
    from mlflow.types.schema import AnyType, ColSpec, DataType, Schema

    schema = model.schema
    columns = [ColSpec(AnyType(), attribute.name, required=False) for attribute in schema.attributes]
    if schema.target is None:
        answers = [ColSpec(DataType.double, LOG_LIKELIHOOD)]
    else:
        answers = [ColSpec(AnyType(), "prediction")]
        answers += [ColSpec(DataType.double, f"probability_{one}") for one in schema.classes]
    return ModelSignature(Schema(columns), Schema(answers))
