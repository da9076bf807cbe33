"""The quality report of a model as a self-contained HTML page."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from learners.errors import NoClass
from learners.evaluation.model_report import ModelReport
from learners.passes.row_rules import apply_schema_null_class
from service.jobs.steps import ignore_report
from service.product.datasets.data_sources import open_data_source
from service.product.inference.metric_words import interval_words
from service.product.inference.scoring import measure_model
from service.product.outputs import Output, check_output_free, output_draft, output_file_name
from service.product.versions.evaluation_records import load_model_report
from service.product.versions.learned_rows import later_rows_warnings, learned_rows_warnings
from service.product.versions.registry import find_version, load_served_model
from service.requests.json_values import JSONMapping, JSONObject
from service.requests.problems import InvalidRequest
from service.workspace import Workspace

if TYPE_CHECKING:
    from jinja2 import Template

MOST_COLUMNS = 30
LOSSES = {
    "zero_one_loss": "wrong answers, as a share",
    "log_loss": "log loss",
    "rmse": "root mean square of 1 - p(true class)",
    "brier": "Brier score",
    "ece": "calibration error of the most probable class",
}


def report_page(report: ModelReport, *, title: str, learner: str, call: str, where: str = "") -> str:
    """Render the report page with its learner, the call that reproduces it, and the origin of the rows."""
    return _template().render(
        report=report, title=title, learner=learner, call=call, where=where, words=LOSSES, most_columns=MOST_COLUMNS
    )


@cache
def _template() -> "Template":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("service.product.views", "templates")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    environment.filters["interval"] = interval_words
    return environment.get_template("report.html")


def version_report(workspace: Workspace, reference: str) -> JSONObject:
    """Return the stored report of a version on its evaluation rows: verdict, losses, calibration, confusion, columns.

    Raises InvalidRequest if it keeps no report: it has no classes, was not measured, or is of an earlier release.
    """
    version = find_version(workspace, reference)
    report = load_model_report(version)
    if report is None:
        name = f"{version.name}@{version.version}"
        raise InvalidRequest(
            f"{name} has no stored report: it has no classes, no rows were kept back in training, or another program or an earlier "
            f"release made it. Evaluate it on rows with known classes: fewpass report {name} FILES --html report.html"
        )
    return report.to_dict()


def write_version_report(
    workspace: Workspace,
    reference: str,
    uris: Sequence[str],
    output: Output,
    *,
    replace: bool = False,
    columns: JSONMapping | None = None,
    warn: Callable[[str], None] = ignore_report,
) -> ModelReport:
    """Measure a version on rows with known classes, and write the page to a file that appears only when complete.

    `warn` gets a sentence if all rows are later than those of training, or if the version has learned from these files. Raises InvalidRequest if the file exists and is not to be replaced; NoClass if the model has no classes; UnknownColumn
    or EmptyData.
    """
    check_output_free(output, replace=replace)
    version = load_served_model(workspace, reference)
    model = version.model
    if model.schema.target is None:
        raise NoClass
    source = apply_schema_null_class(
        open_data_source(workspace, list(uris), is_remote=False, columns=columns, schema=model.schema), model.schema
    )
    measured = measure_model(model, source, is_reported=True)
    known = (
        *learned_rows_warnings(workspace, version.name, version.version, source),
        *later_rows_warnings(workspace, version.name, version.version, model.schema, source),
    )
    for words in (*measured.warnings, *known):
        warn(words)
    report = measured.report
    assert report is not None
    name, files = f"{version.name}@{version.version}", " ".join(uris)
    call = f"fewpass report {name} {files} --html {output_file_name(output)}"
    page = report_page(report, title=name, learner=version.learner, call=call, where=files)
    with output_draft(output, replace=replace) as draft:
        draft.write_text(page, encoding="utf-8")
    return report
