"""What each kind of job does, step by step; the worker and the command line run the same steps."""

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from learners import recipes
from learners.circuits.model import CircuitModel
from learners.kinds import load_model
from learners.memory import limit_memory
from learners.passes.cluster import connected
from learners.passes.engine import collect
from learners.passes.learner import Account, Part, drive
from learners.passes.source import Source, SourceFile
from learners.schema import Schema
from learners.schema.summaries import ColumnSummaries
from service import provenance, queries, roots, scoring
from service.continuing import Continuation, chosen, continuation
from service.foresight import check_queries
from service.forgetting import affected_models, check_forgotten, discard_forgotten, forget_steps
from service.jobs.limits import counts_bytes
from service.jobs.steps import Kinds, Run, Step
from service.ledger import LOCAL, Ledger, ledger_of
from service.predictor import map_version
from service.problems import InvalidRequest
from service.reports import Report, reporting
from service.requests import AnyRequest, EvaluateRequest, ForgetRequest, QueryJobRequest, SchemaRequest, TrainRequest
from service.rows import TrainingRows, opened, training_rows
from service.settings import available_threads
from storage import datasets, models
from storage.compiled import map_compiled, write_compiled
from storage.model_file import remove_model, write_model
from storage.models import ModelVersion
from storage.predicates import RowPredicate

if TYPE_CHECKING:
    from service.workspace import Workspace

COMPILED = "model.arrow"


def kinds(workspace: "Workspace") -> Kinds:
    """The steps of every kind of job, for one workspace."""
    train = (
        Step("learn", partial(learn, workspace)),
        Step("evaluate", partial(evaluate_learned, workspace)),
        Step("reserve", partial(reserve, workspace)),
        Step("publish", partial(publish, workspace)),
    )
    return {
        "train": train,
        "forget": forget_steps(workspace, train),
        "query": (Step("answer", partial(answer_queries, workspace)),),
        "evaluate": (Step("evaluate", partial(evaluate, workspace)),),
        "schema": (Step("summarise", partial(summarise, workspace)),),
    }


def check_request(workspace: "Workspace", request: AnyRequest) -> None:
    """Refuse now what a job could only fail with later, as far as it can be known without reading data.

    Raises
    ------
    NotFound, InvalidParameter, InvalidRequest, UnknownColumn, InvalidEvidence, SchemaError
    """
    if isinstance(request, ForgetRequest):
        RowPredicate(request.where)
        affected_models(workspace, request)
    for name in {getattr(request, "dataset", None), getattr(request, "test_dataset", None)} - {None}:
        workspace.dataset(str(name))
    if isinstance(request, EvaluateRequest):
        workspace.model(request.model)
    if isinstance(request, QueryJobRequest):
        check_queries(workspace.served(request.model).model, request.queries)
    if isinstance(request, TrainRequest):
        recipes.parse_parameters(request.learner, request.parameters)
        target_of(workspace, request)


def learn(workspace: "Workspace", run: Run) -> dict[str, Any]:
    """Make the passes and leave the compiled model in the job's scratch folder."""
    request = TrainRequest(**run.request)
    ledger = ledger_of(workspace, request, run)
    source = opened(workspace, run, request.dataset, request.uris)
    if request.dataset is not None:
        datasets.keep_files(workspace.control, request.dataset, list(map(file_facts, source.files)))
    n_rules = len(ledger.forgotten.rules())
    rows = training_rows(workspace, source, request, run)
    started = time.perf_counter()
    model, accounts = fit(workspace, request, rows, ledger, run)
    seconds = time.perf_counter() - started
    if len(rows.rules) > n_rules:  # of other data with the same files: no job that forgets does it here
        discard_forgotten(ledger)
    path = workspace.layout.scratch_directory(run.job_id) / COMPILED
    path.parent.mkdir(parents=True, exist_ok=True)
    write_compiled(path, *model.to_arrays(), replace=True)
    n_rows = int(model.facts["n_rows"])
    files = [source.files[index] for index in sorted(rows.learned.wanted)]
    return {
        "path": str(path),
        "n_rows": n_rows,
        "files": [file_facts(file) for file in files],
        "passes": [asdict(account) for account in accounts],
        "forgotten": list(rows.rules),
        "train_s": seconds,
        "rows_per_s": n_rows / max(seconds, 1e-9),
    }


def fit(
    workspace: "Workspace", request: TrainRequest, rows: TrainingRows, ledger: Ledger, run: Run
) -> tuple[Any, list[Account]]:
    """The model of the rows, with what is stored as far as it serves, and what that saved."""
    limit_memory(counts_bytes(workspace.settings, run.memory_limit), workspace.temporary)
    overrides, target = _overrides(workspace, request), target_of(workspace, request)
    how = chosen(rows, target, overrides)
    known = continuation(workspace, request, rows, how)
    if isinstance(known, Continuation):
        return _continued(workspace, known, run), [known.account]
    kept = ledger.schema(target, overrides) if request.update else None
    if not run.job_id.startswith(LOCAL):
        workspace.check_roots(roots.files_of(request.parameters))
    parameters = roots.plain_parameters(request.parameters)
    learner = recipes.learner(request.learner, parameters, target, kept, overrides)
    accounts = [] if known is None else [known]
    address = workspace.settings.cluster
    with nullcontext() if address is None else connected(address) as cluster:
        model = drive(
            learner,
            [Part(rows.learned.source, ledger.store, rows.learned)],
            threads=available_threads(workspace.settings),
            on_progress=reporting(run.report),
            checkpoints=ledger.checkpoints,
            accounts=accounts,
            cluster=cluster,
        )
    if isinstance(model, CircuitModel):
        model.facts["chosen"] = how
    if recipes.keeps_schema(request.learner):
        ledger.keep_schema(target, overrides, model.schema)
    return model, accounts


def _continued(workspace: "Workspace", known: Continuation, run: Run) -> Any:
    if known.part is None:
        return known.model
    threads = available_threads(workspace.settings)
    return drive(known.learner(), [known.part], threads=threads, on_progress=reporting(run.report))


def evaluate_learned(workspace: "Workspace", run: Run) -> dict[str, Any]:
    """Measure the learned model on the test data or on rows that were kept back."""
    request = TrainRequest(**run.request)
    learned = run.receipts["learn"]
    timing = {"train_s": learned["train_s"], "rows_per_s": learned["rows_per_s"]}
    if request.keeps_back:
        source = opened(workspace, run, request.dataset, request.uris)
        kept_back = training_rows(workspace, source, request, run).kept_back
        assert kept_back is not None
        rows, where = kept_back.thinned(workspace.settings.evaluation_rows), "hold-out"
    elif request.test_dataset is not None or request.test_uris is not None:
        rows, where = opened(workspace, run, request.test_dataset, request.test_uris), "test data"
    else:
        return {"metrics": timing}
    model = load_model(*map_compiled(learned["path"]))
    return {"metrics": scoring.measure(model, rows, run.report) | {"evaluated_on": where} | timing}


def reserve(workspace: "Workspace", run: Run) -> dict[str, Any]:
    """Take the version's number; a restart before this receipt leaves a gap in the numbers, never a clash."""
    return {"version": models.reserve_version(workspace.control, run.request["model"])}


def publish(workspace: "Workspace", run: Run) -> dict[str, Any]:
    """Files first, row second, aliases last; a repetition finds the row and changes nothing."""
    request = TrainRequest(**run.request)
    learned, metrics = run.receipts["learn"], run.receipts["evaluate"]["metrics"]
    header, arrays = map_compiled(learned["path"])
    tables = load_model(header, arrays).tables() | provenance.tables(request, learned, metrics, run.job_id)
    number = run.receipts["reserve"]["version"]
    files = write_model(workspace.layout.models, request.model, number, header, arrays, tables)
    try:
        check_forgotten(workspace, request, learned, run)  # as late as can be: a job that forgets must see the version
        version = models.add_version(
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
                sha256=files.sha256,
                duckdb_path=files.duckdb_path,
                arrow_path=files.arrow_path,
                tags=request.tags,
            ),
        )
    except BaseException:
        remove_model(files.duckdb_path)
        raise
    if version.duckdb_path != files.duckdb_path:  # an earlier start of this job got as far as the row
        remove_model(files.duckdb_path)
    for alias in request.aliases:
        models.set_alias(workspace.control, version.name, alias, version.version, f"job {run.job_id}")
    return {
        "model": version.name,
        "version": version.version,
        "sha256": version.sha256,
        "metrics": metrics,
        "passes": learned["passes"],
    }


def evaluate(workspace: "Workspace", run: Run) -> dict[str, Any]:
    """Measure a registered version on a data set."""
    request = EvaluateRequest(**run.request)
    version = workspace.model(request.model)
    rows = opened(workspace, run, request.dataset, request.uris)
    model = map_version(version).model
    warnings = scoring.absences(model, rows)
    metrics = scoring.measure(model, rows, run.report)
    return {"model": version.name, "version": version.version, **metrics} | ({"warnings": warnings} if warnings else {})


def answer_queries(workspace: "Workspace", run: Run) -> dict[str, Any]:
    """Ask a registered version, as long as its queries take."""
    request = QueryJobRequest(**run.request)
    version = workspace.model(request.model)
    model = map_version(version).model
    found = []
    for number, query in enumerate(request.queries):
        run.report({"stage": "answering", "rows_done": number, "rows_total": len(request.queries)})
        found += queries.answers(model, [query])
    return {"model": version.name, "version": version.version, "answers": found}


def summarise(workspace: "Workspace", run: Run) -> dict[str, Any]:
    """Infer the schema of a registered data set in one pass, and keep it with the list of its files."""
    name = SchemaRequest(**run.request).dataset
    dataset = workspace.dataset(name)
    source = opened(workspace, run, name, None)
    threads = available_threads(workspace.settings)
    schema = _schema(source, dataset.target, dict(dataset.columns), threads, run.report)
    datasets.describe_dataset(workspace.control, name, schema.to_json(), [file_facts(file) for file in source.files])
    return {"dataset": name, "n_rows": source.n_rows, "n_attributes": schema.n_attributes}


def infer(uris: Sequence[str], target: str | None, columns: dict[str, Any], report: Report) -> Schema:
    """The schema of files that are not registered."""
    return _schema(Source.open(list(uris)), target, columns, None, report)


def _schema(source: Source, target: str | None, columns: dict[str, Any], threads: int | None, report: Report) -> Schema:
    summaries = collect(
        ColumnSummaries(target, columns), source, threads=threads, on_progress=reporting(report), n_passes=1
    )
    return summaries.build_schema()


def target_of(workspace: "Workspace", request: TrainRequest) -> str | None:
    """The column to predict: as asked for, or that of the data set; None for a model of the joint distribution.

    Raises
    ------
    InvalidRequest
        If the learner needs one.
    """
    target = request.target
    if target is None and request.dataset is not None:
        target = workspace.dataset(request.dataset).target
    if target is None and recipes.recipe(request.learner).needs_target:
        raise InvalidRequest("There is no target: name the column to predict.", field="target")
    return target


def _overrides(workspace: "Workspace", request: TrainRequest) -> dict[str, Any]:
    registered = {} if request.dataset is None else dict(workspace.dataset(request.dataset).columns)
    return registered | request.columns


def file_facts(file: SourceFile) -> dict[str, Any]:
    """What is kept of a file that was read."""
    return {"path": file.path, "size": file.size, "n_rows": file.n_rows, "footer_sha256": file.footer_sha256}
