"""`fewpass drift`: whether rows of files still are what a model was trained on, in one pass and without a server."""

from collections.abc import Sequence

from learners.monitoring.count_layout import Watched
from learners.monitoring.drift_report import drift_report
from learners.monitoring.drift_tests import Limits
from learners.monitoring.reference import Reference, served_reference, training_reference
from learners.monitoring.served_counts import ServedCounts
from learners.passes.engine import collect
from service.product.datasets.data_roots import open_source
from service.product.inference.scoring import absences
from service.product.progress import Report, reporting, silent
from service.product.training.scored_counts import scored_counts
from service.product.versions.registry import find_version
from service.requests.json_values import JSONObject
from service.requests.problems import InvalidRequest
from service.serving.predictor import map_version
from service.settings import available_threads
from service.workspace import Workspace

MOST_PREDICTED = 200_000


def drift(
    workspace: Workspace,
    reference: str,
    uris: Sequence[str],
    *,
    against: Sequence[str] = (),
    limits: Limits | None = None,
    report: Report = silent,
) -> JSONObject:
    """Compare the rows of files with what a model was trained on, or `against` the rows of other files.

    Returns what `learners.monitoring.drift_report.drift_report` does, with `model`, `version` and `warnings`. Raises InvalidRequest
    if the data has none of the model's columns, the model uses none, or the model keeps no counts to compare with; EmptyData,
    SourceError, SchemaError or NotFound.
    """
    version = find_version(workspace, reference)
    served = map_version(version)
    watched = Watched(served.model)
    if not watched.names:
        raise InvalidRequest("The model uses no column of its data: no rows can drift from it.")
    whole, warnings = _counts(workspace, watched, uris, report)
    known = _reference(workspace, watched, against, scored_counts(version, watched), report)
    comparison = drift_report(whole, known, limits or Limits())
    return {"model": served.name, "version": served.version, **comparison, "warnings": warnings}


def _counts(
    workspace: Workspace, watched: Watched, uris: Sequence[str], report: Report
) -> tuple[ServedCounts, list[str]]:
    source = open_source(workspace, uris, is_remote=False, schema=watched.schema)
    warnings = absences(watched.model, source)
    one_in = max(1, source.n_rows // MOST_PREDICTED)
    empty = ServedCounts(watched, predict_one_in=one_in, present=source.arrow_schema.names)
    threads = available_threads(workspace.settings)
    return collect(empty, source, threads=threads, on_progress=reporting(report), n_passes=1), warnings


def _reference(
    workspace: Workspace, watched: Watched, against: Sequence[str], scored: ServedCounts | None, report: Report
) -> Reference:
    if against:
        return served_reference(", ".join(against), _counts(workspace, watched, against, report)[0])
    found = training_reference(watched, scored)
    if found is None:
        raise InvalidRequest(
            f"A model of kind {watched.model.kind!r} keeps no counts of its training to compare with. Name files of known "
            "good rows: --against FILES."
        )
    return found
