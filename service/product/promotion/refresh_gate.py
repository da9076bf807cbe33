"""Before a refresh trains: is there a reason to, and is the new data fit to be learned?"""

from learners.errors import LearnerError
from learners.monitoring.count_layout import Watched
from learners.monitoring.drift_report import drift_report
from learners.monitoring.drift_tests import Limits
from learners.monitoring.reference import training_reference
from learners.monitoring.served_counts import ServedCounts
from service.jobs.steps import Run
from service.product.datasets.training_rows import training_source
from service.product.monitoring.windows import monitor
from service.product.training.scored_counts import scored_counts
from service.requests.json_values import JSONObject
from service.requests.problems import Conflict
from service.requests.requests import RefreshRequest
from service.serving.predictor import map_version
from service.workspace import Workspace
from storage.errors import CorruptFile, NotFound
from storage.models import models
from storage.models.models import ModelVersion

MOST_ROWS = 200_000
BROKEN = ("absent", "missing", "unseen", "out_of_range", "swapped", "clipped")


class Quarantined(Conflict):
    """New data that differs from what the champion learned as broken data does; a person has to look at it."""


def inspect(workspace: Workspace, run: Run) -> JSONObject:
    """Whether to train: `is_skipped` says that too little has changed. Quarantined if the newest files are broken."""
    request = RefreshRequest(**run.request)
    champion = _champion(workspace, request)
    if champion is None or (request.quarantine_points is None and request.when == "always"):
        return {"is_skipped": False}
    drifting = [] if request.quarantine_points is None else _look_at_files(workspace, request, champion, run)
    if request.when == "always":
        return {"is_skipped": False}
    served = monitor(workspace, f"{champion.name}@{champion.version}")
    drifting += [cause["words"] for cause in served["causes"]] if served["is_drifting"] else []
    if drifting:
        return {"is_skipped": False, "because": drifting}
    reason = f"nothing that version {champion.version} serves has changed; train with when=always to do it all the same"
    return {"is_skipped": True, "reason": reason}


def _look_at_files(workspace: Workspace, request: RefreshRequest, champion: ModelVersion, run: Run) -> list[str]:
    """Compare the newest file of the training data with what the champion learned; returns what has changed, in words."""
    train = request.train
    try:
        model = map_version(champion).model
        whole = training_source(workspace, train, run, model.schema)
        newest = max(range(len(whole.files)), key=lambda i: (whole.files[i].mtime_ns or 0, whole.files[i].path))
        rows = whole.only({newest}).thinned(MOST_ROWS)
        counts = ServedCounts(Watched(model), present=rows.arrow_schema.names)
        for batch in rows.batches(counts.columns):
            counts.update(batch)
        reference = training_reference(counts.watched, scored_counts(champion, counts.watched))
        if reference is None or not counts.n_rows:
            return []
        found: JSONObject = drift_report(counts, reference, Limits(points=float(request.quarantine_points or 0.0)))
    except (CorruptFile, NotFound):  # of the champion: what is trained now may well be its repair
        return []
    except LearnerError as error:
        raise Quarantined(f"The newest file cannot be read as the champion reads it: {error}", file="") from error
    broken = [cause["words"] for cause in found["causes"] if cause["kind"] in BROKEN]
    if broken:
        path = whole.files[newest].path
        raise Quarantined(
            f"{path} differs so much from what {champion.name}@{champion.version} learned that nothing was trained: "
            f"{'; '.join(broken[:5])}. Mend the data; or, if it is right, refresh once with quarantine_points=null.",
            file=path,
        )
    return [cause["words"] for cause in found["causes"]]


def _champion(workspace: Workspace, request: RefreshRequest) -> ModelVersion | None:
    try:
        return models.find_version(workspace.control, f"{request.train.model}@{request.promotion.alias}")
    except NotFound:
        return None
