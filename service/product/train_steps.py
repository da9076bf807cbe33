"""A training, step by step: learn, evaluate, reserve a number, publish. Workers and commands run the same steps.

Circuits go on learning: from the posterior of the newest version, with the files that it has not seen.
"""

import hashlib
import json
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from learners.circuits.bayesian.model import BayesianCircuit
from learners.circuits.model import CircuitModel
from learners.circuits.recipes import continue_learning, sampled_further
from learners.circuits.structures.from_file import fingerprint, read_circuit
from learners.classifiers.column_findings import table_warnings
from learners.errors import SchemaError, names_with_similar
from learners.models.model import Model
from learners.monitoring.count_layout import network_of
from learners.orders.model import OrderModel
from learners.passes.dask_cluster import connect
from learners.passes.learner import Account, Checkpoints, Learner, Part, drive
from learners.passes.memory import allocate_frugally, limit_memory
from learners.passes.sources.csv.types import idle_options
from learners.passes.sources.row_filter import Selection
from learners.passes.sources.source import Source
from learners.registry import recipes
from learners.registry.model_kinds import load_model
from learners.schema import Kept
from service.jobs.steps import Run, Steps, counts_bytes, reporting
from service.product.datasets.data_sources import check_roots, databases_of, files_of, plain_parameters
from service.product.datasets.dataset_statistics import (
    Ledger,
    file_facts,
    keep_column_order,
    keep_snapshot,
    ledger_of,
    verify_files,
)
from service.product.datasets.registration import get_dataset
from service.product.datasets.training_rows import (
    TrainingRows,
    check_forgotten,
    discard_forgotten,
    measuring_source,
    overrides_of,
    training_rows,
    training_source,
)
from service.product.inference import scoring
from service.product.versions import provenance
from service.product.versions.registry import find_version
from service.requests.json_values import JSONMapping, JSONObject
from service.requests.problems import InvalidRequest
from service.requests.requests import TrainRequest
from service.settings import available_threads
from service.workspace import Workspace
from storage.datasets import definitions
from storage.errors import NotFound
from storage.files.atomic_files import make_folder
from storage.models import model_versions
from storage.models.compiled import map_compiled, write_compiled
from storage.models.model_file import write_model
from storage.models.model_versions import ModelVersion, publishing, register, version_of_job

COMPILED = "model.arrow"
# The fact of a model that tells in which order its rows were sampled.
ORDER = "order"


@dataclass(frozen=True, eq=False)
class Continuation:
    """What is left to learn on top of a version."""

    model: CircuitModel  # with a posterior
    parts: Sequence[Part]  # the new files, behind the others if all rows are sampled; none if there is nothing new
    account: Account  # what need not be read
    order: Sequence[str] = ()  # digests of the files in the order in which their rows are sampled

    def learner(self) -> Learner:
        """Learns the new rows, in their order."""
        if isinstance(self.model, BayesianCircuit):
            return Learner("spn", sampled_further(self.model), 1)
        assert self.model.posterior is not None
        return Learner("spn", continue_learning(self.model.schema, self.model.posterior, self.model.facts), 1)


def train_steps(workspace: Workspace) -> Steps:
    """The steps of a job that trains."""
    steps = {"learn": learn, "evaluate": evaluate_learned, "reserve": reserve, "publish": publish}
    return {name: partial(step, workspace) for name, step in steps.items()}


def _request_of(run: Run) -> TrainRequest:
    """What is asked for, with what the first step found to hold of the columns."""
    columns = run.receipts["learn"].get("columns")  # a job of an earlier release has none
    return TrainRequest(**run.request | ({} if columns is None else {"columns": columns}))


def learn(workspace: Workspace, run: Run) -> JSONObject:
    """Make the passes and leave the compiled model in the job's scratch folder."""
    request = provenance.with_last_columns(workspace, TrainRequest(**run.request))
    ledger = ledger_of(workspace, request, run)
    kept = _kept_schema(workspace, request, ledger)
    source = training_source(workspace, request, run, None if kept is None else kept.schema)
    anew = [] if kept is None else _changed_names(kept, source)
    idle = idle_options(overrides_of(workspace, request), [file.path for file in source.files])
    if request.verify:
        verify_files(source, ledger, run.report)
    if request.dataset is not None:
        keep_column_order(workspace, request.dataset, source)
        definitions.keep_files(workspace.control, request.dataset, list(map(file_facts, source.files)))
    n_rules = len(ledger.forgotten.rules())
    rows = training_rows(workspace, source, request, run)
    started = time.perf_counter()
    try:
        model, accounts = fit(workspace, request, rows, ledger, run)
    except SchemaError as error:
        if not source.hints:
            raise
        raise SchemaError(" ".join([str(error), *source.hints[:3]]), error.column) from error
    seconds = time.perf_counter() - started
    if request.update or request.dataset is not None:  # else the statistics go with the job
        keep_snapshot(rows.learned.raw, ledger)
    if len(rows.rules) > n_rules:  # of other data with the same files: no job that forgets does it here
        discard_forgotten(ledger)
    path = workspace.layout.scratch_directory(run.job_id) / COMPILED
    make_folder(path.parent)
    write_compiled(path, *model.to_arrays(), replace=True)
    n_rows = int(model.facts["n_rows"])
    files = [rows.learned.raw.files[index] for index in sorted(rows.learned.wanted)]
    return {
        "path": str(path),
        "columns": request.columns,
        "n_rows": n_rows,
        "files": [file_facts(file) for file in files],
        "passes": [asdict(account) for account in accounts],
        "forgotten": list(rows.rules),
        "snapshot": None if source.snapshot is None else source.snapshot.facts(source.files),
        "warnings": [*anew, *idle, *rows.learned.raw.hints, *warnings_of(model)],
        "train_s": seconds,
        "rows_per_s": n_rows / max(seconds, 1e-9),
    }


def warnings_of(model: Model) -> list[str]:
    """What is worth knowing of the model's table, and how it was taken."""
    more = model.warnings() if isinstance(model, OrderModel) else []
    return [*table_warnings(model.schema, network_of(model)), *more]


def fit(
    workspace: Workspace, request: TrainRequest, rows: TrainingRows, ledger: Ledger, run: Run
) -> tuple[Any, list[Account]]:
    """The model of the rows, with what is stored as far as it serves, and what that saved."""
    allocate_frugally()
    limit_memory(counts_bytes(workspace.settings, run.memory_limit), workspace.temporary)
    overrides, target = overrides_of(workspace, request), target_of(workspace, request)
    how = chosen(rows, target, overrides)
    known = continuation(workspace, request, rows, how)
    if isinstance(known, Continuation):
        return _continued(workspace, known, run, ledger.checkpoints), [known.account]
    if not run.is_local:
        check_roots(files_of(request.parameters), workspace.settings)
    parameters = plain_parameters(request.parameters)
    kept = _kept_schema(workspace, request, ledger)
    if kept is not None and _changed_names(kept, rows.learned.raw):
        kept = None
    learner = recipes.learner(request.learner, parameters, target, kept, overrides)
    accounts = [] if known is None else [known]
    address = workspace.settings.cluster
    with nullcontext() if address is None else connect(address) as cluster:
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
    if recipes.recipe(request.learner).keeps_schema:
        ledger.keep_schema(target, overrides, recipes.cuts_by(request.learner, parameters), model.schema)
    return model, accounts


def _continued(workspace: Workspace, known: Continuation, run: Run, checkpoints: Checkpoints | None) -> Any:
    if not known.parts:
        return known.model
    threads = available_threads(workspace.settings)
    model = drive(
        known.learner(), known.parts, threads=threads, on_progress=reporting(run.report), checkpoints=checkpoints
    )
    if known.order and isinstance(model, CircuitModel):
        model.facts[ORDER] = list(known.order)
    return model


def evaluate_learned(workspace: Workspace, run: Run) -> JSONObject:
    """Measure the learned model on the test data or on rows that were kept back."""
    request = _request_of(run)
    learned = run.receipts["learn"]
    timing = {"train_s": learned["train_s"], "rows_per_s": learned["rows_per_s"]}
    model = load_model(*map_compiled(learned["path"]))
    if request.keeps_back:
        request = provenance.of_snapshot(request, learned.get("snapshot"))
        source = training_source(workspace, request, run, model.schema)
        kept_back = training_rows(workspace, source, request, run).kept_back
        assert kept_back is not None
        rows, where = kept_back.thinned(workspace.settings.evaluation_rows), "hold-out"
    elif request.test_dataset is not None or request.test_uris is not None:
        rows = measuring_source(workspace, request.test_uris, request.test_dataset, run, model.schema)
        where = "test data"
    else:
        return {"metrics": timing}
    provenance.keep_scored(model, rows, Path(learned["path"]))
    # Of a rare class all rows may be kept back: the model does not know it, and is wrong there.
    found = scoring.measure(model, rows, run.report, takes_unknown=request.keeps_back, is_reported=True)
    answer = {"metrics": found.beside_floor | {"evaluated_on": where} | timing}
    return answer if found.report is None else answer | {"report": found.report.to_dict()}


def reserve(workspace: Workspace, run: Run) -> JSONObject:
    """Take the version's number; a restart before this receipt leaves a gap in the numbers, never a clash."""
    return {"version": model_versions.reserve_version(workspace.control, run.request["model"])}


def publish(workspace: Workspace, run: Run) -> JSONObject:
    """Files first, then the row with its aliases; a repetition finds the row and changes nothing."""
    request = _request_of(run)
    learned, metrics = run.receipts["learn"], run.receipts["evaluate"]["metrics"]
    version = version_of_job(workspace.control, request.model, run.job_id)
    if version is None:
        with publishing(workspace.layout.model_directory(request.model)):
            version = _published(workspace, request, run)
    return {
        "model": version.name,
        "version": version.version,
        "sha256": version.sha256,
        "metrics": metrics,
        "passes": learned["passes"],
        "warnings": learned.get("warnings", []),  # a job of an earlier release has none
    }


def _published(workspace: Workspace, request: TrainRequest, run: Run) -> ModelVersion:
    learned, metrics = run.receipts["learn"], run.receipts["evaluate"]["metrics"]
    number = run.receipts["reserve"]["version"]
    header, arrays = map_compiled(learned["path"])
    paths = [str(file["path"]) for file in learned["files"]]
    tables = load_model(header, arrays).tables() | provenance.tables(
        request, dict(learned) | {"databases": databases_of(workspace, paths)}, metrics, run.job_id
    )
    tables |= provenance.scored_tables(Path(learned["path"])) | provenance.report_tables(
        run.receipts["evaluate"].get("report")
    )
    files = write_model(workspace.layout.models, request.model, number, header, arrays, tables)
    return register(
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
        check=partial(check_forgotten, workspace, request, learned, run),
    )


def target_of(workspace: Workspace, request: TrainRequest) -> str | None:
    """The column to predict: as asked for, or that of the data set; InvalidRequest if the learner needs one, or takes none."""
    target, recipe = request.target, recipes.recipe(request.learner)
    if not recipe.takes_target:
        if target is not None:
            what = f"Learner {request.learner!r} has no class, every column is a node: leave the target out."
            raise InvalidRequest(what, field="target")
        return None
    if target is None and request.dataset is not None:
        target = get_dataset(workspace, request.dataset).target
    if target is None and recipe.needs_target:
        raise InvalidRequest("There is no target: name the column to predict.", field="target")
    return target


def _kept_schema(workspace: Workspace, request: TrainRequest, ledger: Ledger) -> Kept | None:
    """What an update keeps of the last training, if there was one."""
    if not request.update:
        return None
    cuts_by = recipes.cuts_by(request.learner, plain_parameters(request.parameters))
    return ledger.schema(target_of(workspace, request), overrides_of(workspace, request), cuts_by)


def _changed_names(kept: Kept, source: Source) -> list[str]:
    """Why the columns of a lake table are no longer those of its last training, in words; nothing if they are."""
    names, known = source.arrow_schema.names, [attribute.name for attribute in kept.schema.attributes]
    gone = [name for name in known if name not in names]
    if source.snapshot is None or not gone:
        return []
    words = names_with_similar(gone, [name for name in names if name not in known])
    return [
        f"{source.snapshot.place}: columns were renamed or dropped since the last training: {words}. Attributes and cut points "
        "are chosen anew, and all rows are read."
    ]


def continuation(
    workspace: Workspace, request: TrainRequest, rows: TrainingRows, how: str
) -> Continuation | Account | None:
    """How an update goes on from the newest version: an Account says why it must start anew; None if there is nothing to go on from.

    It can go on if the version was learned by ADF, BMM or sampling with the same parameters, target, columns and choice of rows, and
    every file that it has learned from is still there, and the circuit that it began with: a posterior over rows in their order cannot forget.
    `how` is as `chosen` says.
    """
    if not request.update or request.learner != "spn" or request.window is not None:
        return None
    try:
        version = find_version(workspace, f"{request.model}@latest")
    except NotFound:
        return None
    model = load_model(*map_compiled(version.arrow_path))
    if not isinstance(model, CircuitModel):
        return None
    is_sampled = isinstance(model, BayesianCircuit)
    if isinstance(model, BayesianCircuit):
        if model.sampled is None:
            return _anew("no states of its rows were kept to go on from")
    elif model.posterior is None:
        return None
    if dict(version.parameters) != dict(request.parameters):
        return _anew("the parameters have changed")
    file = request.parameters.get("circuit")
    if file and fingerprint(read_circuit(file)[0]) != model.facts.get("circuit_sha256"):
        return _anew("the circuit of its file has changed")
    if model.facts.get("chosen") != how:
        return _anew("the target, the columns or the choice of rows have changed")
    raw = rows.learned.raw
    seen = {_identity(file) for file in version.files}
    now = {index: _identity(file_facts(raw.files[index])) for index in rows.learned.wanted}
    if not seen <= set(now.values()):
        return _anew("a file that was learned from is gone or has changed")
    new = [index for index, identity in now.items() if identity not in seen]
    n_new = sum(raw.files[index].n_rows for index in new)
    n_old = sum(raw.files[index].n_rows for index in now) - n_new
    if not new:
        return Continuation(model, (), Account("learning row by row", 0, n_old, 0, len(now)))
    added = Part(_only(rows, new))
    if not is_sampled:
        account = Account("learning row by row", n_new, n_old, len(new), len(now) - len(new))
        return Continuation(model, [added], account)
    # Rows come as they are in the states that were kept: those of a file that was added later behind all before it.
    order: Any = model.facts.get(ORDER) or [_digest(_identity(file)) for file in version.files]
    old = sorted((index for index in now if index not in new), key=lambda index: order.index(_digest(now[index])))
    account = Account("sampling", n_new + n_old, 0, len(now), 0)
    parts = [*(Part(_only(rows, [index])) for index in old), added]
    return Continuation(model, parts, account, [_digest(now[index]) for index in [*old, *sorted(new)]])


def _only(rows: TrainingRows, indices: Sequence[int]) -> Source:
    return Selection(rows.learned.raw, {index: rows.learned.wanted[index] for index in indices}).source


def _anew(reason: str) -> Account:
    return Account(f"starting anew, as {reason}", 0, 0, 0, 0)


def chosen(rows: TrainingRows, target: str | None, overrides: JSONMapping) -> str:
    """What is learned of which rows, as a SHA-256: kept in the model, so that an update goes on with the same.

    Not in words, as those of forgotten rows may name somebody, and models are carried elsewhere.
    """
    texts = sorted({condition.text for own in rows.learned.wanted.values() for condition in own})
    text = json.dumps([texts, target, overrides], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _digest(identity: tuple[Any, ...]) -> str:
    return hashlib.sha256(repr(identity).encode()).hexdigest()


def _identity(file: Any) -> tuple[Any, ...]:
    return tuple(file.get(name) for name in ("path", "size", "footer_sha256", "content_sha256"))
