"""Forgetting rows: mark them, subtract them from the statistics and the models, and prove it."""

import json
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from learners import recipes
from learners.kinds import load_model
from learners.passes.files import whole_and_part
from learners.passes.learner import Part, drive
from learners.passes.source import Source, file_identity
from learners.schema import Kept
from service.jobs.steps import Run, Step, run_now
from service.ledger import Ledger, ledger_of
from service.problems import InvalidRequest
from service.reports import reporting
from service.requests import ForgetRequest, TrainRequest
from service.roots import plain_parameters
from service.rows import Not, matching_rows, training_rows
from service.settings import available_threads
from storage.compiled import map_compiled
from storage.model_file import read_provenance
from storage.models import ModelVersion
from storage.paging import pages
from storage.predicates import RowPredicate

if TYPE_CHECKING:
    from service.workspace import Workspace


def forget_steps(workspace: "Workspace", train: Sequence[Step]) -> tuple[Step, ...]:
    """The steps of a job that forgets rows; `train` are those of a training."""
    return (
        Step("mark", partial(mark, workspace)),
        Step("retrain", partial(retrain, workspace, train)),
        Step("prove", partial(prove, workspace)),
    )


def mark(workspace: "Workspace", run: Run) -> dict[str, Any]:
    """Find the rows, and make the rule that no training from now on learns them."""
    request = ForgetRequest(**run.request)
    affected = affected_models(workspace, request)
    source, ledger = _place(workspace, request, affected, run)
    predicate = RowPredicate(request.where)
    forgotten = ledger.forgotten
    for column in predicate.columns:
        if column not in source.arrow_schema.names:
            raise InvalidRequest(f"The condition names the column {column!r}, which is not in the data.", field="where")
    # Searched before the rule stands: a condition that fails on the data must not stop every training after it.
    matching_rows(source, predicate, range(min(1, len(source.files))), report=run.report)
    forgotten.add(predicate.text)
    counts = matching_rows(source, predicate, range(len(source.files)), forgotten, run.report)
    found = {source.files[index].path: n for index, n in counts.items() if n}
    return {
        "n_rows": sum(found.values()),
        "files": found,
        "models": [version.name for version in affected] if request.retrain else [],
    }


def retrain(workspace: "Workspace", train: Sequence[Step], run: Run) -> dict[str, Any]:
    """Train each model as its newest version was, from the statistics less the forgotten rows."""
    versions = []
    for name in run.receipts["mark"]["models"]:
        newest = workspace.model(name)
        # What was served by an alias shall not go on knowing the rows.
        aliases = [alias for alias, number in workspace.aliases(name).items() if number == newest.version]
        asked = _request_of(newest) | {"update": True, "aliases": aliases}
        published = run_now(train, run.job_id, asked, run.report, run.memory_limit)
        versions.append({name: published[name] for name in ("model", "version", "passes")})
    return {"versions": versions}


def prove(workspace: "Workspace", run: Run) -> dict[str, Any]:
    """Learn each new version once more from the remaining rows alone, and remove the statistics with the others."""
    request = ForgetRequest(**run.request)
    marked, trained = run.receipts["mark"], run.receipts["retrain"]["versions"]
    proofs = []
    for entry in trained if request.prove else ():
        version = workspace.model(f"{entry['model']}@{entry['version']}")
        proofs.append({"model": version.name, "version": version.version} | _proof(workspace, version, run))
    affected = affected_models(workspace, request)
    source, ledger = _place(workspace, request, affected, run)
    n_removed = _remove_statistics(ledger, source, request, set(marked["files"]))
    return {
        "n_rows": marked["n_rows"],
        "files": marked["files"],
        "versions": trained,
        "proofs": proofs,
        "statistics_removed": n_removed,
        "still_holding": _older_versions(workspace, trained),
    }


def affected_models(workspace: "Workspace", request: ForgetRequest) -> list[ModelVersion]:
    """The newest versions that were trained on the data.

    Raises
    ------
    NotFound
    """
    if request.model is not None:
        return [workspace.model(request.model)]
    workspace.dataset(str(request.dataset))
    names = [model.name for model in pages(workspace.models)]
    return [version for version in map(workspace.model, names) if version.dataset == request.dataset]


def _request_of(version: ModelVersion) -> dict[str, Any]:
    asked = read_provenance(version.duckdb_path).get("request")
    if asked is None:
        raise InvalidRequest(
            f"{version.name}@{version.version} was trained before versions kept their request: train it once again.",
            field="model",
        )
    return dict(json.loads(asked))


def _place(
    workspace: "Workspace", request: ForgetRequest, affected: Sequence[ModelVersion], run: Run
) -> tuple[Source, Ledger]:
    """All files of the data, and its ledger."""
    if request.dataset is not None:
        uris = list(workspace.dataset(request.dataset).uris)
        asked = TrainRequest(dataset=request.dataset, learner="nb", model="any")
    else:
        asked = TrainRequest(**_request_of(affected[0]) | {"update": True})
        if asked.uris is None:
            raise InvalidRequest(
                f"{asked.model} was trained on the data set {asked.dataset!r}: forget rows of that.", field="model"
            )
        uris = list(asked.uris)
    return Source.open(uris), ledger_of(workspace, asked, run)


def _proof(workspace: "Workspace", version: ModelVersion, run: Run) -> dict[str, Any]:
    """Whether the version equals a model of the remaining rows that no stored statistic had a part in."""
    request = TrainRequest(**_request_of(version))
    source = Source.open(list(request.uris or workspace.dataset(str(request.dataset)).uris))
    rows = training_rows(source, request, ledger_of(workspace, request, run).forgotten, run.report)
    trained = load_model(*map_compiled(version.arrow_path))
    target = trained.schema.target
    parameters = plain_parameters(request.parameters)
    learner = recipes.learner(request.learner, parameters, target, Kept(trained.schema))
    threads = available_threads(workspace.settings)
    again = drive(learner, [Part(rows.learned.source)], threads=threads, on_progress=reporting(run.report))
    (header, arrays), (fresh_header, fresh) = trained.to_arrays(), again.to_arrays()
    is_equal = header == fresh_header and arrays.keys() == fresh.keys()
    is_equal = is_equal and all(np.array_equal(arrays[name], fresh[name], equal_nan=True) for name in arrays)
    return {"is_equal": is_equal, "n_rows": fresh_header["facts"]["n_rows"]}


def _remove_statistics(ledger: Ledger, source: Source, request: ForgetRequest, paths: set[str]) -> int:
    """Discard what was counted with the forgotten rows."""
    if ledger.store is None:
        return 0
    rule = Not(RowPredicate(request.where)).text
    affected = {file_identity(file) for file in source.files if file.path in paths}
    n_removed = 0
    for entry in ledger.store.entries():
        parts = [whole_and_part(identity) for identity in entry.files]
        if any(whole in affected and (conditions is None or rule not in conditions) for whole, conditions in parts):
            ledger.store.store.discard(entry.key)
            n_removed += 1
    return n_removed


def _older_versions(workspace: "Workspace", trained: Sequence[dict[str, Any]]) -> list[str]:
    """Versions that were learned with the rows and still exist; deleting them is for their owner to decide."""
    older = []
    for entry in trained:
        versions = pages(partial(workspace.versions, entry["model"]))
        older += [f"{v.name}@{v.version}" for v in versions if v.version < entry["version"]]
    return sorted(older)
