"""Champion and challenger: a refresh inspects the data, trains a version, measures both on the same new rows, and
decides by a rule.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import structlog

from learners.errors import LearnerError
from learners.models.model import Model
from learners.monitoring.count_layout import Watched
from learners.monitoring.drift_findings import Limits
from learners.monitoring.drift_report import drift_report
from learners.monitoring.label_counts import LabelCounts, labels_to_compare
from learners.monitoring.served_counts import ServedCounts
from learners.passes.sources.source import Source
from learners.schema import Schema
from learners.schema.schema import MASSES, Attribute
from service.jobs.steps import Run, Steps
from service.product.datasets.later_rows import KeptBack
from service.product.datasets.registration import get_dataset
from service.product.datasets.training_rows import open_evaluation_source, open_training_source, select_training_rows
from service.product.inference import scoring
from service.product.monitoring.windows import monitoring_window_report
from service.product.networks_first import networks_first, networks_of_job
from service.product.train_steps import train_steps, training_target
from service.product.versions.deletion import prune_model_versions
from service.product.versions.evaluation_records import reference_of_training
from service.product.versions.learned_rows import LearnedRows
from service.product.versions.provenance import request_at_snapshot
from service.product.versions.registry import aliases_of
from service.requests.json_values import JSONMapping, JSONObject
from service.requests.problems import Conflict, InvalidRequest
from service.requests.requests import PromotionRule, RefreshRequest, TrainRequest
from service.serving.predictor import map_model_version
from service.workspace import Workspace
from storage.errors import Conflict as Moved
from storage.errors import CorruptFile, NotFound
from storage.models import model_versions, promotions
from storage.models.model_versions import ModelVersion
from storage.models.promotions import Promotion

JOINT_METRIC = "log_loss"  # of classes; or of whole rows, where there are none
ROUNDING = 1e-12  # what sums in another order may differ by
DECISIONS = 3  # as often it is decided anew when the champion changes in between


Work = Callable[[Run], JSONObject]
Read = Callable[[Schema | None], Source]  # rows, as the model of a schema reads them
MOST_ROWS = 200_000
BROKEN = ("absent", "missing", "unseen", "out_of_range", "swapped", "clipped")


class Measured(NamedTuple):
    """Evaluation of a version on the deciding rows: its metrics or why they are missing, the losses of the class shares
    alone, and its schema.
    """

    version: int
    metrics: JSONObject | None
    problem: str = ""
    of_class_shares: Mapping[str, float] = {}
    schema: Schema = Schema((), None, ())  # empty if it could not be loaded


class Verdict(NamedTuple):
    """Decision of the rule, with its reason."""

    is_promoted: bool
    reason: str


def refresh_steps(workspace: Workspace) -> Steps:
    """Return the steps of a refresh job: inspection of the data, training, decision."""
    train = {name: _of_train(work) for name, work in train_steps(workspace, learns_held_out=False).items()}
    work = networks_first(workspace, train | {"decide": partial(decide_promotion, workspace)})
    return {
        "inspect": partial(inspect_refresh_data, workspace),
        **{name: _unless_skipped(step) for name, step in work.items()},
    }


def _of_train(work: Work) -> Work:
    return lambda run: work(replace(run, request=run.request["train"]))


def _unless_skipped(work: Work) -> Work:
    """Wrap a step so that it is skipped if the inspection found nothing to do."""

    def run_unless(run: Run) -> JSONObject:
        looked = run.receipts.get("inspect", {})  # a job of an earlier release has not looked
        return looked if looked.get("is_skipped") else work(run)

    return run_unless


def checked_refresh_training(workspace: Workspace, request: RefreshRequest) -> TrainRequest:
    """Return the training request of a refresh (NotFound); InvalidRequest if its rule uses a class metric and the model
    has no class.
    """
    rule, train = request.promotion, request.train
    if rule.dataset is not None:
        get_dataset(workspace, rule.dataset)
    if train.dataset is not None:
        get_dataset(workspace, train.dataset)
    if rule.metric != JOINT_METRIC and training_target(workspace, train) is None:
        raise InvalidRequest(
            f"A model without a target has no {rule.metric}: promote by {JOINT_METRIC}, which is then the mean negative "
            "log likelihood of the rows.",
            field="promotion.metric",
        )
    return train


def decide_promotion(workspace: Workspace, run: Run) -> JSONObject:
    """Measure challenger and champion, record the decision, move the alias, and prune the model's old versions."""
    request = RefreshRequest(**run.request)
    published = run.receipts["publish"]
    name, number = published["model"], published["version"]
    schema = _schema(workspace, name, number)
    read_all, measured_on = _rows(workspace, request, run, schema)
    for attempt in range(DECISIONS):
        champion = aliases_of(workspace, name).get(request.promotion.alias)
        numbers = dict.fromkeys([number] if champion is None else [number, champion])
        read, words = _unlearned_rows(workspace, request, run, name, list(numbers), read_all, schema)
        challenger = _measured(workspace, name, number, read, run)
        against = None if champion is None else _measured(workspace, name, champion, read, run)
        rule = request.promotion
        networks = networks_of_job(workspace, name, run.job_id)
        if networks is not None and networks.version == champion:  # which stand in for the version with trees
            rule = rule.model_copy(update={"margin": min(rule.margin, 0.0), "min_rows": 1})
        is_promoted, reason = promotion_verdict(rule, challenger, against)
        reason += words
        decision = Promotion(
            name=name,
            alias=request.promotion.alias,
            challenger=number,
            champion=champion,
            is_promoted=is_promoted,
            reason=reason,
            rule=rule.model_dump(),
            challenger_metrics=challenger.metrics,
            champion_metrics=None if against is None else against.metrics,
            measured_on=measured_on,
            job_id=run.job_id,
        )
        try:
            decision = promotions.record_promotion(workspace.control, decision)
        except Moved:  # somebody moved the alias meanwhile
            if attempt == DECISIONS - 1:
                raise
        else:
            break
    structlog.get_logger("jobs").info(
        "promotion decided", model=name, promoted=decision.is_promoted, reason=decision.reason
    )
    record = vars(decision) | {"decided_at": str(decision.decided_at)}
    return {**published, "promotion": record, "pruned": prune_model_versions(workspace, name, job_id=run.job_id)}


def promotion_verdict(rule: PromotionRule, challenger: Measured, champion: Measured | None) -> Verdict:
    """Apply a rule to two versions measured on the same rows; `champion` is None if there is no champion.

    The reason says how many rows have a class that a version does not know.
    """
    verdict = _verdict(rule, challenger, champion)
    if champion is None or champion.version == challenger.version:
        return verdict._replace(reason=verdict.reason + _unknown_class_words(challenger))
    words = (*map(_unknown_class_words, (challenger, champion)), _other_intervals_words(challenger, champion))
    return verdict._replace(reason=verdict.reason + "".join(words))


def _unknown_class_words(measured: Measured) -> str:
    """Say how many rows have a class that a version does not know; empty if it knows all."""
    n = (measured.metrics or {}).get("n_unknown_class_rows", 0)
    if not n:
        return ""
    rows = f"{n:,} of {(measured.metrics or {})['n_test_rows']:,} rows"
    return f"; {rows} have a class that version {measured.version} does not know, and count as wrong"


def _verdict(rule: PromotionRule, challenger: Measured, champion: Measured | None) -> Verdict:
    if champion is not None and champion.version == challenger.version:
        return Verdict(True, f"version {challenger.version} is already the {rule.alias}")
    keeps = f"{rule.alias} stays unset" if champion is None else f"version {champion.version} stays {rule.alias}"
    if (problem := _below_floor(rule, challenger)) is not None:
        return Verdict(False, f"{keeps}: {problem}")
    if champion is None:
        return Verdict(True, f"version {challenger.version} is the first {rule.alias}")
    for measured in (challenger, champion):
        if measured.metrics is None:
            return Verdict(False, f"{keeps}: version {measured.version} could not be measured ({measured.problem})")
    assert challenger.metrics is not None
    assert champion.metrics is not None
    n_rows = challenger.metrics["n_test_rows"]
    if n_rows < rule.min_rows:
        return Verdict(False, f"{keeps}: {n_rows} rows are fewer than the required {rule.min_rows}")
    if (why := _why_incomparable(challenger, champion)) is not None:
        return Verdict(False, f"{keeps}: the two cannot be compared by {rule.metric}, because {why}")
    new, old = _loss(challenger.metrics, rule.metric), _loss(champion.metrics, rule.metric)
    if new is None or old is None:
        return Verdict(False, f"{keeps}: the two cannot be compared by {rule.metric}, which one of them lacks")
    margin = f" less {rule.margin:g}" if rule.margin > 0 else f" plus {-rule.margin:g}" if rule.margin < 0 else ""
    compared = f"{rule.metric} {new:.6g} against {old:.6g}{margin}, on {n_rows} rows"
    # Written so that a NaN never wins.
    if not (math.isfinite(new) and new <= old - rule.margin):
        return Verdict(False, f"{keeps}: version {challenger.version} has {compared}")
    # What predicts no class has no calibration error to guard.
    increase = challenger.metrics.get("ece", 0.0) - champion.metrics.get("ece", 0.0)
    if rule.max_ece_increase is not None and not increase <= rule.max_ece_increase:
        return Verdict(
            False,
            f"{keeps}: version {challenger.version} has {compared}, but its calibration error is {increase:.4g} greater, more than the "
            f"allowed {rule.max_ece_increase:g}",
        )
    return Verdict(True, f"version {challenger.version} replaces {champion.version} as {rule.alias}: {compared}")


def _why_incomparable(challenger: Measured, champion: Measured) -> str | None:
    """Return why the losses of two versions are not of the same answers; None if they are."""
    new, old = challenger.schema, champion.schema
    if new.target != old.target:
        return " and ".join(
            f"version {one.version} predicts {one.schema.target or 'no class'}" for one in (challenger, champion)
        )
    if new.target is None and (others := set(new.columns) ^ set(old.columns)):
        return f"only one has {', '.join(sorted(others))}, and the likelihood of a row falls with each column"
    return None


def _other_intervals_words(challenger: Measured, champion: Measured) -> str:
    """Name the columns that two versions without a class divide into different intervals; empty without any."""
    if challenger.schema.target is not None or challenger.metrics is None or champion.metrics is None:
        return ""
    before = {attribute.name: _events(attribute) for attribute in champion.schema.attributes}
    others = [one.name for one in challenger.schema.attributes if before.get(one.name, _events(one)) != _events(one)]
    if not others:
        return ""
    return f"; {', '.join(others)} differ in their intervals, which changes the log likelihood, too: --cuts kept keeps them"


def _events(attribute: Attribute) -> tuple[object, ...]:
    """Return what a model of the joint distribution gives a probability to: intervals, values or a density."""
    if attribute.distribution is not None:
        return (attribute.distribution in MASSES,)
    return (attribute.cuts, attribute.part)


def _below_floor(rule: PromotionRule, challenger: Measured) -> str | None:
    """Return why a version cannot be promoted whatever the champion is; None if it can."""
    its = f"version {challenger.version}"
    if challenger.metrics is None:
        return f"{its} could not be measured ({challenger.problem})"
    loss = _loss(challenger.metrics, rule.metric)
    if loss is None:  # it predicts no class, and has log loss alone
        return None
    if math.isnan(loss):
        return f"{its} has no {rule.metric}"
    if rule.max_loss is not None and loss > rule.max_loss:
        return f"{its} has {rule.metric} {loss:.6g}, above the allowed {rule.max_loss:g}"
    floor = challenger.of_class_shares.get(rule.metric, math.inf)
    if rule.beats_prior and loss > floor + ROUNDING:
        return f"{its} has {rule.metric} {loss:.6g}, worse than the class shares alone ({floor:.6g})"
    return None


def _loss(metrics: JSONMapping, metric: str) -> float | None:
    """Return a metric where lower is better; for a model without classes, the mean negative log likelihood.

    Rows that it calls impossible make that infinite, though `log_likelihood` is the mean of the others.
    """
    if metric == JOINT_METRIC and "log_likelihood" in metrics:
        return math.inf if metrics["n_impossible"] else -metrics["log_likelihood"]
    return metrics.get(metric)


def _measured(workspace: Workspace, name: str, number: int, read: Read, run: Run) -> Measured:
    try:
        model = _mapped(workspace, name, number)
        measured = scoring.measure_model(model, read(model.schema), run.report)
        shown = {f"{name}_of_class_shares": loss for name, loss in measured.floor.items()}
        return Measured(number, measured.metrics | shown, of_class_shares=measured.floor, schema=model.schema)
    except (LearnerError, NotFound, CorruptFile) as error:  # a new class, a lost column, no rows, a damaged file
        return Measured(number, None, str(error))


def _mapped(workspace: Workspace, name: str, number: int) -> Model:
    version = model_versions.get_version(workspace.control, name, number)
    try:
        return map_model_version(version).model
    except CorruptFile:
        # A champion that was replaced and removed since its row was read is gone, and not damaged.
        model_versions.get_version(workspace.control, name, number)
        raise


def _schema(workspace: Workspace, name: str, number: int) -> Schema | None:
    """Return the schema by which a version reads rows; None if it cannot be loaded, which `_measured` reports."""
    try:
        return _mapped(workspace, name, number).schema
    except (LearnerError, NotFound, CorruptFile):
        return None


def _rows(workspace: Workspace, request: RefreshRequest, run: Run, schema: Schema | None) -> tuple[Read, JSONMapping]:
    """Return the deciding rows, in the types of each model, and a description of them."""
    rule, train = request.promotion, request_at_snapshot(request.train, run.receipts.get("learn", {}).get("snapshot"))
    most = workspace.settings.evaluation_rows
    dataset = rule.dataset or train.test_dataset
    if rule.dataset is not None or not train.keeps_back:
        uris = None if dataset else train.test_uris

        def read_all(schema: Schema | None) -> Source:
            return open_evaluation_source(workspace, uris, dataset, run, schema)

        files = [file.path for file in read_all(schema).files]
        return lambda schema: read_all(schema).thinned(most), {"dataset": dataset, "files": files}

    by = KeptBack.of(run.receipts.get("learn", {}).get("kept_back"))

    def kept_back(schema: Schema | None) -> Source:
        source = open_training_source(workspace, train, run, schema)
        rows = select_training_rows(workspace, source, train, run, by).kept_back
        assert rows is not None
        return rows

    own = kept_back(schema)
    newest = newest_file_positions(own, rule.newest_files, rule.min_rows / train.holdout)
    files = [own.files[index].path for index in newest]
    description: JSONMapping = {"dataset": train.dataset, "files": files, "holdout": train.holdout, "seed": train.seed}
    return lambda schema: kept_back(schema).only(set(newest)).thinned(most), description


def _unlearned_rows(
    workspace: Workspace,
    request: RefreshRequest,
    run: Run,
    name: str,
    numbers: Sequence[int],
    read: Read,
    schema: Schema | None,
) -> tuple[Read, str]:
    """Leave out the deciding rows that one of the versions has learned, where enough others are left; and say it.

    Returns how to read the rows, and words for the reason of the decision, empty if none was learned.
    """
    by = KeptBack.of(run.receipts.get("learn", {}).get("kept_back"))
    leave_out: list[LearnedRows] = []
    words = ""

    def unlearned(schema: Schema | None) -> Source:
        rows = read(schema)
        for learned in leave_out:
            rows = learned.unlearned(rows)
        return rows

    for number in numbers:
        learned = LearnedRows.of(model_versions.get_version(workspace.control, name, number))
        is_same = request.train.keeps_back and learned.keeps_back_as(by, request.train.holdout, request.train.seed)
        try:
            rows = unlearned(schema)
            changed = learned.changed_files(rows)
            if is_same and request.promotion.dataset is None and not changed:
                continue
            n_rows, n_left = _n_rows(rows), _n_rows(learned.unlearned(rows))
        except LearnerError:  # which measuring them reports
            continue
        if n_left == n_rows:
            continue
        has, loss_is = ("may have", "may be") if changed else ("has", "is")
        why = f", as {rows.files[changed[0]].path} has changed since" if changed else ""
        if n_left < request.promotion.min_rows:
            words += f"; version {number} {has} learned {n_rows - n_left:,} of these {n_rows:,} rows{why}, so its loss {loss_is} too low"
        else:
            words += f"; {n_rows - n_left:,} rows that version {number} {has} learned are left out{why}"
            leave_out.append(learned)
    return unlearned, words


def _n_rows(source: Source) -> int:
    return sum(batch.num_rows for batch in source.batches(source.arrow_schema.names[:1]))


def newest_file_positions(source: Source, n_files: int, n_rows: float) -> list[int]:
    """Return the positions of the newest files: `n_files`, and more until they hold `n_rows` rows."""
    chosen: list[int] = []
    rows = 0
    of_files = {fragment.file for fragment in source.fragments}
    for index in sorted(of_files, key=lambda i: (source.files[i].mtime_ns or 0, source.files[i].path), reverse=True):
        if len(chosen) >= n_files and rows >= n_rows:
            break
        chosen.append(index)
        rows += source.files[index].n_rows
    return chosen


class Quarantined(Conflict):
    """Raised for new data that looks broken compared with the champion's training data; a person has to check it."""


def inspect_refresh_data(workspace: Workspace, run: Run) -> JSONObject:
    """Return whether to train: `is_skipped` means that too little has changed. Quarantined if a new file looks
    broken.
    """
    request = RefreshRequest(**run.request)
    champion = _champion(workspace, request)
    if champion is None or (request.quarantine_points is None and request.when == "always"):
        return {"is_skipped": False}
    drifting = [] if request.quarantine_points is None else _look_at_files(workspace, request, champion, run)
    if request.when == "always":
        return {"is_skipped": False}
    served = monitoring_window_report(workspace, f"{champion.name}@{champion.version}")
    drifting += [cause["words"] for cause in served["causes"]] if served["is_drifting"] else []
    if drifting:
        return {"is_skipped": False, "because": drifting}
    reason = f"the data of version {champion.version} has not changed; use when=always to train anyway"
    return {"is_skipped": True, "reason": reason}


def _look_at_files(workspace: Workspace, request: RefreshRequest, champion: ModelVersion, run: Run) -> list[str]:
    """Compare each training file that the champion has not learned, or else the newest, with the champion's training data;
    return the changes in words.
    """
    limits = Limits(points=float(request.quarantine_points or 0.0))
    changes: list[str] = []
    path = ""
    try:
        watched = Watched(map_model_version(champion).model)
        whole = open_training_source(workspace, request.train, run, watched.schema)
        reference = reference_of_training(workspace, champion, watched)
        if reference is None:
            return []
        for file in _files_to_look_at(whole, champion):
            path = whole.files[file].path
            counts = ServedCounts(watched, present=whole.arrow_schema.names)
            classes = LabelCounts(watched.schema) if watched.schema.target in whole.arrow_schema.names else None
            columns = [*counts.columns, *([] if classes is None else classes.columns)]
            for batch in whole.only({file}).thinned(MOST_ROWS).batches(columns):
                counts.update(batch)
                if classes is not None:
                    classes.update(batch)
            if counts.n_rows:
                labels = None if classes is None else labels_to_compare(classes, None, reference)
                report: JSONObject = drift_report(counts, reference, limits, labels)
                _check_not_broken(report, path, champion)
                changes += [cause["words"] for cause in report["causes"]]
    except (CorruptFile, NotFound):  # of the champion: what is trained now may well be its repair
        return []
    except LearnerError as error:
        raise Quarantined(f"A new file cannot be read as the champion reads it: {error}", file=path) from error
    return list(dict.fromkeys(changes))


def _files_to_look_at(source: Source, champion: ModelVersion) -> list[int]:
    """Return the positions of the files that the champion has not learned, the newest first. If it has learned all or none of
    them, return the newest file alone.
    """
    known = set(LearnedRows.of(champion).known_files(source))
    newest = sorted(
        range(len(source.files)), key=lambda i: (source.files[i].mtime_ns or 0, source.files[i].path), reverse=True
    )
    unknown = [i for i in newest if i not in known]
    return unknown if known and unknown else newest[:1]


def _check_not_broken(report: JSONMapping, path: str, champion: ModelVersion) -> None:
    broken = [cause["words"] for cause in report["causes"] if cause["kind"] in BROKEN and cause["effect"] > 0]
    if broken:
        raise Quarantined(
            f"{path} differs so much from what {champion.name}@{champion.version} learned that nothing was trained: "
            f"{'; '.join(broken[:5])}. Fix the data; if it is correct, refresh once with quarantine_points=null.",
            file=path,
        )


def _champion(workspace: Workspace, request: RefreshRequest) -> ModelVersion | None:
    try:
        return model_versions.find_model_version(workspace.control, f"{request.train.model}@{request.promotion.alias}")
    except NotFound:
        return None
