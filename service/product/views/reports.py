"""The report of a model as one page that needs nothing but itself."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from learners.errors import NoClass
from learners.evaluation.model_report import MOST_CLASSES, ModelReport, report_of
from learners.passes.sources.null_class import as_trained
from service.product.datasets.data_roots import open_source
from service.product.inference.scoring import probabilities_of
from service.product.outputs import check_free
from service.product.versions.registry import find_version
from service.serving.predictor import map_version
from service.workspace import Workspace
from storage.files.workspace_layout import publish

if TYPE_CHECKING:
    from jinja2 import Template

MOST_COLUMNS = 30
LOSSES = {
    "zero_one_loss": "wrong answers, as a share",
    "log_loss": "log loss, nats",
    "rmse": "root mean square of 1 - p(true class)",
    "brier": "Brier score",
    "ece": "calibration error of the most probable class",
}


def report_page(report: ModelReport, *, title: str, learner: str, call: str, where: str = "") -> str:
    """The page.

    Parameters
    ----------
    report : ModelReport
    title : str
    learner : str
        Of the model.
    call : str
        What makes the page again.
    where : str
        Where the rows are from.
    """
    return _template().render(
        report=report,
        title=title,
        learner=learner,
        call=call,
        where=where,
        losses=LOSSES.items(),
        most_classes=MOST_CLASSES,
        most_columns=MOST_COLUMNS,
    )


@cache
def _template() -> "Template":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("service.product.views", "templates")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined).get_template("report.html")


def write_report(
    workspace: Workspace, reference: str, uris: Sequence[str], output: Path, *, replace: bool = False
) -> ModelReport:
    """Measure a version on rows whose class is known, and write the page to a file that appears when it is complete.

    Raises
    ------
    InvalidRequest
        If the file exists and is not to be replaced.
    NoClass
        If the model has no classes.
    UnknownColumn, EmptyData
    """
    check_free(output, replace=replace)
    version = find_version(workspace, reference)
    model = map_version(version).model
    if model.schema.target is None:
        raise NoClass
    source = as_trained(open_source(workspace, list(uris), is_remote=False, schema=model.schema), model.schema)
    report = report_of(model, *probabilities_of(model, source))
    name, files = f"{version.name}@{version.version}", " ".join(uris)
    page = report_page(
        report,
        title=name,
        learner=version.learner,
        call=f"fewpass report {name} {files} --html {output.name}",
        where=files,
    )
    with publish(output, replace=replace) as draft:
        draft.write_text(page, encoding="utf-8")
    return report
