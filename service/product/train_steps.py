"""The steps of a training: learn, evaluate, reserve a number, publish. Workers and commands run the same steps."""

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from learners.classifiers.column_findings import training_column_warnings
from learners.errors import EmptyData, SchemaError, names_with_suggestions
from learners.models.model import Model
from learners.monitoring.count_layout import monitored_network
from learners.passes.dask_cluster import connect_dask_cluster
from learners.passes.learner import Account, Checkpoints, Part, drive
from learners.passes.memory import configure_memory_allocators, set_memory_limit
from learners.passes.refreshed_schema import moved_cut_point_warnings
from learners.passes.row_rules import row_weight_warnings
from learners.passes.sources.csv.types import unused_csv_options
from learners.passes.sources.row_filter import FEW_ROWS, FEW_SHARE, lone_window_warnings, newest_time
from learners.passes.sources.source import Source, file_identity
from learners.registry import recipes
from learners.registry.model_kinds import kind_of, load_model
from learners.schema import Kept, Overrides
from learners.wording import count_with_noun
from service.jobs.job_limits import counts_memory_limit
from service.jobs.steps import Run, Steps, progress_reporter
from service.product.circuit_updates import ORDER, Continuation, training_selection_sha256, update_continuation
from service.product.datasets.data_sources import (
    check_data_roots,
    database_uris_by_file,
    learner_parameter_files,
    parameters_with_file_paths,
)
from service.product.datasets.dataset_statistics import (
    JobCheckpoints,
    Ledger,
    save_column_order,
    save_lake_snapshot,
    source_file_record,
    statistics_ledger,
    verify_files,
)
from service.product.datasets.forgotten_rows import (
    ForgottenMeanwhile,
    check_forgotten_meanwhile,
    discard_forgotten_statistics,
    unforgotten_row_conditions,
)
from service.product.datasets.later_rows import KeptBack
from service.product.datasets.registration import get_dataset
from service.product.datasets.training_rows import (
    TrainingRows,
    open_evaluation_source,
    open_training_source,
    select_training_rows,
    training_column_overrides,
)
from service.product.inference import scoring
from service.product.versions import evaluation_records, provenance
from service.requests.json_values import JSONObject
from service.requests.problems import InvalidRequest
from service.requests.requests import TrainRequest
from service.settings import available_threads
from service.workspace import Workspace
from storage.datasets import dataset_definitions
from storage.datasets.forgotten import Forgotten
from storage.files.atomic_files import create_folder
from storage.models import model_versions
from storage.models.compiled import map_compiled, write_compiled
from storage.models.model_file import write_model
from storage.models.model_versions import (
    ModelVersion,
    find_job_model_version,
    register_model_version,
    version_publishing_lock,
)

COMPILED = "model.arrow"
EVALUATED_ON = {"random": "hold-out", "time": "newest rows", "order": "last rows"}
LEARNED_AFTER = ", learned afterwards"
ATTEMPTS = 3  # as often a job learns when rows are forgotten in between


def train_steps(
    workspace: Workspace,
    learns_held_out: bool | None = None,
    by: KeptBack | None = None,
    evaluation_rows: int | None = None,
) -> Steps:
    """Return the steps of a training job.

    `learns_held_out`: learn the newest rows, too, once the model was measured on them. By default if the training is
    not an update: the next update measures on the rows that it keeps back, among which are some of these. `by`: how
    rows are kept back, by default chosen now. `evaluation_rows`: of about how many rows the measured ones are, by
    default those of the settings.
    """
    steps: dict[str, Callable[..., JSONObject]] = {
        "learn": partial(learn_model, by=by),
        "evaluate": partial(evaluate_learned_model, learns_held_out=learns_held_out, evaluation_rows=evaluation_rows),
        "reserve": reserve_version_number,
        "publish": partial(publish_trained_version, by=by),
    }
    return {name: partial(step, workspace) for name, step in steps.items()}


def _request_of(run: Run) -> TrainRequest:
    """Return the training request with the column overrides resolved by the first step."""
    columns = run.receipts["learn"].get("columns")  # a job of an earlier release has none
    return TrainRequest(**run.request | ({} if columns is None else {"columns": columns}))


def learn_model(workspace: Workspace, run: Run, *, by: KeptBack | None = None) -> JSONObject:
    """Run the passes and write the compiled model to the job's scratch folder. `by`: how rows are kept back, by default chosen now."""
    request = provenance.request_with_last_columns(workspace, TrainRequest(**run.request))
    ledger = statistics_ledger(workspace, request, run)
    overrides, target = training_column_overrides(workspace, request), training_target(workspace, request)
    known = _kept_schema(request, ledger, target, overrides)
    # From scratch means from the files, also in how these are read.
    source = open_training_source(
        workspace, request, run, None if known is None or known.cuts == "fresh" else known.schema
    )
    anew = [] if known is None else _changed_names(known, source)
    idle = unused_csv_options(overrides, [file.path for file in source.files])
    if request.verify:
        verify_files(source, ledger, run.report)
    if request.dataset is not None:
        save_column_order(workspace, request.dataset, source)
        dataset_definitions.set_dataset_files(
            workspace.control, request.dataset, list(map(source_file_record, source.files))
        )
    n_rules = len(ledger.forgotten.rules())
    try:
        rows = select_training_rows(workspace, source, request, run, by)
        started = time.perf_counter()
        model, accounts = fit_training_rows(
            workspace, request, rows, ledger, run, target, overrides, None if anew else known
        )
    except (EmptyData, InvalidRequest, SchemaError) as error:
        hints = [*_lone_window(source, request, ledger.forgotten)]
        if isinstance(error, SchemaError):
            hints += [*source.hints[:3], *source.all_settings(overrides, error.columns)]
        error.args = (" ".join([str(error), *hints]),)
        raise
    seconds = time.perf_counter() - started
    if request.update or request.dataset is not None:  # else the statistics go with the job
        save_lake_snapshot(rows.learned.raw, ledger)
    if len(rows.rules) > n_rules:  # of other data with the same files: no job that forgets does it here
        discard_forgotten_statistics(ledger)
    path = workspace.layout.scratch_directory(run.job_id) / COMPILED
    create_folder(path.parent)
    write_compiled(path, *model.to_arrays(), replace=True)
    n_rows = int(model.facts["n_rows"])
    files = [rows.learned.raw.files[index] for index in sorted(rows.learned.wanted)]
    return {
        "path": str(path),
        "columns": request.columns,
        "n_rows": n_rows,
        "files": [source_file_record(file) for file in files],
        "passes": [asdict(account) for account in accounts],
        "forgotten": list(rows.rules),
        "snapshot": None if source.snapshot is None else source.snapshot.facts(source.files),
        "kept_back": None if rows.by is None else rows.by.facts(),
        "warnings": [
            *anew,
            *idle,
            *_forgotten_row_warnings(rows, ledger.forgotten),
            *rows.learned.raw.hints,
            *rows.learned.raw.all_settings(overrides),
            *([] if known is None or anew else moved_cut_point_warnings(known, model.schema)),
            *trained_model_warnings(model),
            *row_weight_warnings(model.schema, overrides),
            *([] if rows.by is None else rows.by.warnings()),
            *_lone_window(source, request, ledger.forgotten, n_rows),
        ],
        "train_s": seconds,
        "rows_per_s": n_rows / max(seconds, 1e-9),
    }


def _forgotten_row_warnings(rows: TrainingRows, forgotten: Forgotten) -> list[str]:
    """Return how many rows the rules of forgotten rows left out; not their conditions, because models leave the workspace."""
    source = rows.learned.raw
    files = [file_identity(source.files[index]) for index in rows.learned.wanted]
    matches = [sum(forgotten.counts(where).get(file, 0) for file in files) for where in rows.rules]
    n_rules = sum(n > 0 for n in matches)
    if not n_rules:
        return []
    return [
        f"Left out {count_with_noun(sum(matches), 'forgotten row')} ({count_with_noun(n_rules, 'rule')} of fewpass forget)."
    ]


def _lone_window(source: Source, request: TrainRequest, forgotten: Forgotten, n_learned: int = 0) -> list[str]:
    """Return a warning if few rows were learned because the newest time lies far after all others; reads rows only in
    that case.
    """
    if request.window is None or request.timestamp is None:
        return []
    if n_learned >= max(FEW_ROWS, FEW_SHARE * sum(file.n_rows for file in source.files)):
        return []
    counting = unforgotten_row_conditions(source, forgotten)
    return lone_window_warnings(source, request.window, request.timestamp, counting)


def trained_model_warnings(model: Model) -> list[str]:
    """Return warnings about the model's training table and how its columns were used."""
    return [*training_column_warnings(model.schema, monitored_network(model), model.facts), *model.warnings()]


def fit_training_rows(
    workspace: Workspace,
    request: TrainRequest,
    rows: TrainingRows,
    ledger: Ledger,
    run: Run,
    target: str | None,
    overrides: Overrides,
    kept: Kept | None,
) -> tuple[Any, list[Account]]:
    """Fit the model, reusing stored statistics where possible; return it with an account of the reused counts.

    `kept`: what an update keeps of the last training.
    The next update begins with its schema, unless that has learned rows which were kept back.
    """
    configure_memory_allocators()
    set_memory_limit(counts_memory_limit(workspace.settings, run.memory_limit), workspace.temporary)
    how = training_selection_sha256(rows, target, overrides)
    known = update_continuation(workspace, request, rows, how)
    if isinstance(known, Continuation):
        return _continued(workspace, known, run, ledger.checkpoints), [known.account]
    if not run.is_local:
        check_data_roots(learner_parameter_files(request.parameters), workspace.settings)
    parameters = parameters_with_file_paths(request.parameters)
    if request.update:
        last = provenance.last_trained_model(workspace, request.model)
        parameters = provenance.parameters_with_decided_memory(parameters, request.learner, last)
    by = request.holdout_by if rows.by is None else rows.by.decides_by(request.holdout_by)
    learner = recipes.learner(request.learner, parameters, target, kept, overrides, by)
    accounts = [] if known is None else [known]
    address = workspace.settings.cluster
    with nullcontext() if address is None else connect_dask_cluster(address) as cluster:
        model = drive(
            learner,
            [Part(rows.learned.source, ledger.store, rows.learned)],
            threads=available_threads(workspace.settings),
            on_progress=progress_reporter(run.report),
            checkpoints=ledger.checkpoints,
            accounts=accounts,
            cluster=cluster,
        )
    if kind_of(model).is_circuit:
        model.facts["chosen"] = how
    has_held_out = rows.by is not None and rows.by.is_learned
    if recipes.learner_recipe(request.learner).keeps_schema and not has_held_out:
        ledger.keep_schema(target, overrides, recipes.cut_point_parameters(request.learner, parameters), model.schema)
    return model, accounts


def _continued(workspace: Workspace, known: Continuation, run: Run, checkpoints: Checkpoints | None) -> Any:
    if not known.parts:
        return known.model
    threads = available_threads(workspace.settings)
    model = drive(
        known.learner(),
        known.parts,
        threads=threads,
        on_progress=progress_reporter(run.report),
        checkpoints=checkpoints,
    )
    if known.order:
        model.facts[ORDER] = list(known.order)
    return model


def evaluate_learned_model(
    workspace: Workspace, run: Run, *, learns_held_out: bool | None = None, evaluation_rows: int | None = None
) -> JSONObject:
    """Measure the learned model on the test data or on held-out rows, and learn these if they are the newest.

    `learned_all` in the answer replaces parts of the receipt of the step that learned.
    """
    request = _request_of(run)
    learned = run.receipts["learn"]
    timing = {"train_s": learned["train_s"], "rows_per_s": learned["rows_per_s"]}
    model = load_model(*map_compiled(learned["path"]))
    again: Source | None = None  # all rows, to learn the newest of them as well
    if request.keeps_back:
        request = provenance.request_at_snapshot(request, learned.get("snapshot"))
        source = open_training_source(workspace, request, run, model.schema)
        by = KeptBack.of(learned.get("kept_back"))
        kept_back = select_training_rows(workspace, source, request, run, by).kept_back
        assert kept_back is not None
        if by.by != "random" and (not request.update if learns_held_out is None else learns_held_out):
            again = open_training_source(workspace, request, run)  # before there are other files
        rows = kept_back.thinned(evaluation_rows or workspace.settings.evaluation_rows)
        where = EVALUATED_ON[by.by]
    elif request.test_dataset is not None or request.test_uris is not None:
        rows = open_evaluation_source(workspace, request.test_uris, request.test_dataset, run, model.schema)
        where = "test data"
    else:
        return {"metrics": timing}
    evaluation_records.save_evaluation_counts(model, rows, Path(learned["path"]))
    try:
        measured = scoring.measure_model(model, rows, run.report, is_reported=True)
    except EmptyData as error:
        forgotten = statistics_ledger(workspace, request, run).forgotten
        error.args = (
            " ".join([str(error), *(_lone_window(source, request, forgotten) if request.keeps_back else [])]),
        )
        raise
    learned_all: JSONObject = {}
    if again is not None:
        learned_all = {"learned_all": _learn_held_out(workspace, run, request, again, by, model)}
        where += LEARNED_AFTER
    evaluation_records.save_report(measured.report, Path(learned["path"]))
    return {"metrics": measured.beside_floor | {"evaluated_on": where} | timing} | learned_all


def _learn_held_out(
    workspace: Workspace, run: Run, request: TrainRequest, source: Source, by: KeptBack, before: Model
) -> JSONObject:
    """Learn all rows, including those on which the model `before` was measured; return what changes in the receipt."""
    learned = run.receipts["learn"]
    ledger = statistics_ledger(workspace, request, run)
    path = workspace.layout.scratch_directory(run.job_id) / f"all-{COMPILED}"
    if ledger.checkpoints is not None:
        ledger.checkpoints = JobCheckpoints(path.with_name("passes-of-all"), workspace.settings.checkpoint_s)
    newest = ""
    if by.by == "time":
        newest = newest_time(source, by.column, unforgotten_row_conditions(source, ledger.forgotten)).isoformat()
    replaced = {*trained_model_warnings(before), *by.warnings()}
    by = replace(by, is_learned=True, newest=newest)
    rows = select_training_rows(workspace, source, request, run, by)
    overrides, target = training_column_overrides(workspace, request), training_target(workspace, request)
    kept = _kept_schema(request, ledger, target, overrides)
    if kept is not None and _changed_names(kept, source):
        kept = None
    model, _ = fit_training_rows(workspace, request, rows, ledger, run, target, overrides, kept)
    write_compiled(path, *model.to_arrays(), replace=True)
    assert rows.kept_back is not None
    measured = rows.kept_back.thinned(workspace.settings.evaluation_rows)
    evaluation_records.save_evaluation_counts(model, measured, path)
    files = [rows.learned.raw.files[index] for index in sorted(rows.learned.wanted)]
    return {
        "path": str(path),
        "n_rows": int(model.facts["n_rows"]),
        "files": [source_file_record(file) for file in files],
        "kept_back": by.facts(),
        "warnings": [
            *(text for text in learned.get("warnings", []) if text not in replaced),
            *trained_model_warnings(model),
            *by.warnings(),
        ],
    }


def _learned(run: Run) -> JSONObject:
    """Return the receipt of the step that learned, with what learning the held-out rows has changed."""
    learned_all: JSONObject = run.receipts.get("evaluate", {}).get("learned_all", {})
    return run.receipts["learn"] | learned_all


def reserve_version_number(workspace: Workspace, run: Run) -> JSONObject:
    """Reserve the version's number; a restart before this receipt leaves a gap in the numbers, never a clash."""
    return {"version": model_versions.reserve_version(workspace.control, run.request["model"])}


def publish_trained_version(workspace: Workspace, run: Run, *, by: KeptBack | None = None) -> JSONObject:
    """Publish the files first, then the row with its aliases; a repetition finds the row and changes nothing.

    What learned rows that are forgotten meanwhile learns again without them; ForgottenMeanwhile if that happens each time.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return _publish(workspace, run)
        except ForgottenMeanwhile:
            receipts = dict(run.receipts)
            run = replace(run, receipts=receipts)
            receipts["learn"] = learn_model(workspace, run, by=by)
            receipts["evaluate"] = evaluate_learned_model(
                workspace, run, learns_held_out="learned_all" in receipts["evaluate"]
            )
    return _publish(workspace, run)


def _publish(workspace: Workspace, run: Run) -> JSONObject:
    request = _request_of(run)
    learned = _learned(run)
    version = find_job_model_version(workspace.control, request.model, run.job_id)
    if version is None:
        with version_publishing_lock(workspace.layout.model_directory(request.model)):
            version = _write_version(workspace, request, run)
    return {
        "model": version.name,
        "version": version.version,
        "sha256": version.sha256,
        "metrics": dict(version.metrics),
        "passes": learned["passes"],
        "warnings": learned.get("warnings", []),  # a job of an earlier release has none
    } | {name: learned[name] for name in ("networks_version",) if name in learned}


def _write_version(workspace: Workspace, request: TrainRequest, run: Run) -> ModelVersion:
    learned, metrics = _learned(run), run.receipts["evaluate"]["metrics"]
    number = run.receipts["reserve"]["version"]
    header, arrays = map_compiled(learned["path"])
    paths = [str(file["path"]) for file in learned["files"]]
    tables = load_model(header, arrays).tables() | provenance.provenance_tables(
        request, dict(learned) | {"databases": database_uris_by_file(workspace, paths)}, metrics, run.job_id
    )
    tables |= evaluation_records.evaluation_count_tables(Path(learned["path"])) | evaluation_records.report_tables(
        Path(run.receipts["learn"]["path"]), run.receipts["evaluate"].get("report")
    )
    files = write_model(workspace.layout.models, request.model, number, header, arrays, tables)
    provenance.remember_written_provenance(files, tables)
    return register_model_version(
        workspace.control,
        ModelVersion(
            name=request.model,
            version=number,
            learner=request.learner,
            parameters=request.parameters,
            dataset=request.dataset,
            metrics=metrics,
            job_id=run.job_id,
            files=tuple(learned["files"]),
            n_rows=learned["n_rows"],
            tags=request.tags,
            **vars(files),
        ),
        aliases=request.aliases,
        reason=f"job {run.job_id}",
        # As late as can be: a job that forgets must see the version.
        check=partial(check_forgotten_meanwhile, workspace, request, learned, run),
    )


def training_target(workspace: Workspace, request: TrainRequest) -> str | None:
    """Return the target column of the request or of the data set; InvalidRequest if the learner needs one or takes
    none.
    """
    target, recipe = request.target, recipes.learner_recipe(request.learner)
    if not recipe.takes_target:
        if target is not None:
            what = f"Learner {request.learner!r} has no class, because every column is a node: leave the target out."
            raise InvalidRequest(what, field="target")
        return None
    if target is None and request.dataset is not None:
        target = get_dataset(workspace, request.dataset).target
    if target is None and recipe.needs_target:
        raise InvalidRequest("No target was given: name the column to predict.", field="target")
    return target


def _kept_schema(request: TrainRequest, ledger: Ledger, target: str | None, overrides: Overrides) -> Kept | None:
    """Return what an update keeps of the last training; None if there was none."""
    if not request.update:
        return None
    cuts_by = recipes.cut_point_parameters(request.learner, parameters_with_file_paths(request.parameters))
    schema = ledger.schema(target, overrides, cuts_by)
    return None if schema is None else Kept(schema, request.cuts)


def _changed_names(kept: Kept, source: Source) -> list[str]:
    """Explain how the columns of a lake table differ from those of its last training; empty if they do not."""
    names, known = source.arrow_schema.names, [attribute.name for attribute in kept.schema.attributes]
    gone = [name for name in known if name not in names]
    if source.snapshot is None or not gone:
        return []
    words = names_with_suggestions(gone, [name for name in names if name not in known])
    return [
        f"{source.snapshot.place}: columns were renamed or dropped since the last training: {words}. Attributes and cut points are "
        "chosen again from all rows."
    ]
