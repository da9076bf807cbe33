"""Forgetting rows: mark them, subtract them from statistics and models, prove it; or withdraw the rule."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from pydantic import ValidationError

from learners.errors import UnknownColumn
from learners.passes.learner import Part, drive
from learners.passes.sources.source import Source
from learners.registry import recipes
from learners.registry.model_kinds import load_model
from service.jobs import children
from service.jobs.steps import (
    LOCAL,
    STAND_IN,
    Run,
    Steps,
    ignore_report,
    progress_reporter,
    run_job_steps,
)
from service.product.audit import record_audit_act
from service.product.child_process import run_in_child_process
from service.product.datasets.data_sources import (
    check_data_roots,
    file_uri_to_path,
    learner_parameter_files,
    parameters_with_file_paths,
)
from service.product.datasets.dataset_statistics import (
    DATA,
    RULES,
    Ledger,
    source_with_verified_hashes,
    statistics_ledger,
)
from service.product.datasets.forgotten_rows import (
    check_condition_columns,
    count_matching_rows,
    discard_forgotten_statistics,
    forgetting_rule_files,
    save_forgetting_rules,
)
from service.product.datasets.later_rows import KeptBack
from service.product.datasets.registration import get_dataset
from service.product.datasets.training_rows import open_training_source, select_training_rows, training_column_overrides
from service.product.forgetting.forgetting_price import forgetting_price
from service.product.forgetting.receipts import add_forgetting_receipt, searched_files
from service.product.networks_first import corrects_by_trees, publish_networks, stands_in
from service.product.train_steps import train_steps
from service.product.versions import provenance
from service.product.versions.registry import (
    aliases_of,
    find_version,
    list_models,
    list_versions,
    newest_versions_of_dataset,
)
from service.requests.json_values import JSONObject
from service.requests.problems import InvalidRequest
from service.requests.recorded import current_request
from service.requests.requests import ForgetRequest, TrainRequest
from service.settings import available_threads
from service.workspace import Workspace
from storage.control.control import empty_write_ahead_log
from storage.control.paging import iterate_page_items
from storage.datasets import dataset_definitions
from storage.datasets.forgotten import Forgotten, forgotten_rule_sha256, rule_conditions_by_path
from storage.datasets.predicates import RowPredicate
from storage.errors import CorruptFile, NotFound
from storage.models.compiled import map_compiled
from storage.models.model_versions import ModelVersion

MEASURED = 100_000  # a version without some rows is measured on the rows kept back of about so many
OWN_FACTS = {"chosen"}  # what a training writes into a circuit for the next one


def forget_steps(workspace: Workspace) -> Steps:
    """Return the steps of a job that forgets rows."""
    steps = {
        "mark": mark_forgotten_rows,
        "retrain": retrain_without_forgotten,
        "prove": prove_forgetting,
        "receipt": add_forgetting_receipt,
        "queue": queue_later_proof,
    }
    return {name: partial(step, workspace) for name, step in steps.items()}


def mark_forgotten_rows(workspace: Workspace, run: Run) -> JSONObject:
    """Find the rows, and create the rule that excludes them from all later trainings."""
    request = ForgetRequest(**run.request)
    affected = models_affected_by_forgetting(workspace, request)
    source, ledger = _place(workspace, request, affected, run)
    predicates = [RowPredicate(where, is_new=True) for where in request.conditions]
    predicate = RowPredicate.any_of(predicates)
    forgotten = ledger.forgotten  # as the file has it: who forgets the rows again mends a file that has lost the rule
    check_condition_columns(predicate, source.arrow_schema.names)
    if request.prediction_key is not None and request.prediction_key not in source.arrow_schema.names:
        raise UnknownColumn(request.prediction_key, source.arrow_schema.names)
    if not request.dry_run:
        for each in predicates:
            forgotten.add(each.text)
    # Before the rule is saved: who compares text with a number, say, shall read so, and not that no row matches.
    every = range(len(source.files))
    of_each = [count_matching_rows(source, each, every, forgotten, run.report, is_strict=True) for each in predicates]
    # A row may match several conditions.
    counts = of_each[0] if len(of_each) == 1 else count_matching_rows(source, predicate, every, None, run.report)
    n_by_file = {source.files[index].path: n for index, n in counts.items() if n}
    if request.dry_run:
        served = _served(workspace, request, affected, source, predicate)
        searched: dict[str, int] = {}
        for i, n in counts.items():
            searched |= {digest: max(n, searched.get(digest, 0)) for digest in source.files[i].digests}
        holding = _holding(workspace, request, searched, *predicates)
        head = {"n_rows": sum(n_by_file.values()), "files": n_by_file, "models": []}
        prices = []
        for version in affected if request.retrain and n_by_file else ():
            again = TrainRequest(**_request_again(version))
            prices.append(forgetting_price(workspace, version, again, predicate, run))
        return head | {"served": served, "holding": list(holding), "prices": prices}
    if n_by_file and sum(n_by_file.values()) == source.n_rows:
        raise InvalidRequest(
            "The condition matches every row, so none would be left to train on. Narrow it, or delete the models and their data.",
            field="where",
        )
    save_forgetting_rules(workspace, forgotten)
    # Of no row there is nothing to learn anew, unless a version has learned from a file that is gone.
    knows = bool(n_by_file) or any(
        any(_holding(workspace, request, forgotten.footers(each.text), each)) for each in predicates
    )
    searched_each = [
        searched_files(source.files, own, forgotten.groups(each.text))
        for each, own in zip(predicates, of_each, strict=True)
    ]
    return {
        "n_rows": sum(n_by_file.values()),
        "files": n_by_file,
        "models": [version.name for version in affected] if request.retrain and knows else [],
        "served": _served(workspace, request, affected, source, predicate),
        "searched": searched_each[0],
    } | ({"each": searched_each} if len(searched_each) > 1 else {})


def _served(
    workspace: Workspace,
    request: ForgetRequest,
    affected: Sequence[ModelVersion],
    source: Source,
    predicate: RowPredicate,
) -> JSONObject | None:
    """Return the forgotten predictions; None unless the request names their key column."""
    if request.prediction_key is None:
        return None
    from service.product.forgetting.forgetting_predictions import forget_predictions_of_rows  # .06 s, with what serves

    names = [version.name for version in affected]
    return dict(
        forget_predictions_of_rows(workspace, names, source, predicate, request.prediction_key, dry_run=request.dry_run)
    )


def check_forget_condition(workspace: Workspace, request: ForgetRequest, *, is_remote: bool) -> None:
    """Refuse an invalid condition, one that may fail on some values, and one that names a column missing from the data.

    Schemas of earlier trainings define the columns; only what they lack is looked for in the files, and not in object
    stores: no request shall wait for them. Raises InvalidPredicate, InvalidRequest, NotFound, OutsideRoots or
    SourceError.
    """
    affected = models_affected_by_forgetting(workspace, request)
    if request.model is not None:
        _training_on_files(affected[0])
    predicate = RowPredicate.any_of([RowPredicate(where, is_new=True) for where in request.conditions])
    known = {column for version in affected for column in _columns_of(version)}
    if set(predicate.columns) <= known:
        return
    dataset = None if request.dataset is None else get_dataset(workspace, request.dataset)
    uris = dataset.uris if dataset is not None else _request_of(affected[0]).get("uris") or ()
    if not any("://" in file_uri_to_path(uri) for uri in uris):
        if is_remote and not children.is_child:  # a server reads nothing itself
            limit = workspace.settings.request_timeout_s
            look = partial(check_forget_condition, is_remote=True)
            run_in_child_process(workspace, look, request, time_limit_s=limit)
            return
        run = Run("look" if is_remote else f"{LOCAL}look", {}, {}, ignore_report)
        check_condition_columns(predicate, _place(workspace, request, affected, run)[0].arrow_schema.names)


def _columns_of(version: ModelVersion) -> list[str]:
    """Return the columns of a version's training data, including those excluded from the model."""
    try:
        schema = load_model(*map_compiled(version.arrow_path)).schema
    except (CorruptFile, NotFound):
        return []
    return [*schema.columns, *(column.name for column in schema.left_out)]


def retrain_without_forgotten(workspace: Workspace, run: Run) -> JSONObject:
    """Retrain each model with the request of its newest version, from the statistics minus the forgotten rows.

    On request, networks alone are published first if trees must be trained again.
    """
    request, versions = ForgetRequest(**run.request), []
    rules = {forgotten_rule_sha256(RowPredicate(where).text) for where in request.conditions}
    for name in run.receipts["mark"]["models"]:
        # Not what an earlier start of this job has made, nor networks that stand in for a version with trees.
        own = {run.job_id, run.job_id + STAND_IN}
        before = [version for version in _versions(workspace, name) if version.job_id not in own]
        newest = next((version for version in before if not stands_in(version)), None)
        newest = newest or find_version(workspace, f"{name}@latest")
        if newest.job_id not in own and rules <= set(_rules_of(newest)) and _is_from_scratch(newest):
            # An earlier job of the same rule has made it, and failed later or had it proved.
            stand_ins = [version for version in before if version.job_id == f"{newest.job_id}{STAND_IN}"]
            versions += [{"model": name, "version": each.version, "passes": []} for each in (*stand_ins, newest)]
            continue
        for published in _trained_again(workspace, newest, run, networks_first=request.networks_first):
            versions.append({name: published[name] for name in ("model", "version", "passes")})
    return {"versions": versions}


def _is_from_scratch(version: ModelVersion) -> bool:
    """Return whether a version's schema comes from its own rows alone."""
    request = _request_of(version)
    return not request["update"] or request.get("cuts") == "fresh"


def _trained_again(
    workspace: Workspace, newest: ModelVersion, run: Run, *, networks_first: bool
) -> Iterator[JSONObject]:
    """Train a version again, and yield the published versions: first, on request, the networks of a version with trees."""
    request = _request_again(newest)
    # What was served by an alias shall not go on knowing the rows; networks that stood in for the version have its aliases.
    stand_ins = [version.version for version in _versions(workspace, newest.name) if stands_in(version)]
    aliases = aliases_of(workspace, newest.name).items()
    replaced = {newest.version, *(number for number in stand_ins if number > newest.version)}
    request["aliases"] = [alias for alias, number in aliases if number in replaced]
    by = provenance.kept_back(newest)
    # A choice at random tells nothing of any row. Bounds of later rows may be values of the rows that go, so they are chosen anew.
    chosen = by if by == KeptBack("random") else None
    most = min(MEASURED, workspace.settings.evaluation_rows)
    steps = train_steps(workspace, learns_held_out=by.is_learned, by=chosen, evaluation_rows=most)
    if networks_first and corrects_by_trees(newest):
        yield publish_networks(workspace, steps, run, request)
    yield run_job_steps(steps, run.job_id, request, run.report, run.memory_limit)


def costs_of_trees(workspace: Workspace, request: ForgetRequest) -> list[str]:
    """Say of each model with trees how long learning them took, and which version answers in the meantime."""
    lines = []
    for version in models_affected_by_forgetting(workspace, request):
        if corrects_by_trees(version):
            took, name = version.metrics.get("train_s"), f"{version.name}@{version.version}"
            cost = "" if took is None else f" ({took:.1f} s for {name})"
            until = "networks without the rows answer" if request.networks_first else f"{name} keeps answering"
            hint = "" if request.networks_first else ", or with --networks-first the networks without the rows"
            lines.append(
                f"If {version.name} has learned such rows, its weights and trees are trained again{cost}. Meanwhile {until}{hint}."
            )
    return lines


def queue_later_proof(workspace: Workspace, run: Run) -> JSONObject:
    """Return the result of a job that forgets, with the id of the job that will prove it (`proof_job`) on request."""
    request, result = ForgetRequest(**run.request), run.receipts["receipt"]
    if not request.prove_later or request.dry_run or not result.get("versions"):
        return result
    from service.jobs.queue import job_queue  # loads dbos, which only this needs

    again = request.model_copy(update={"prove": True, "prove_later": False, "networks_first": False})
    fields = again.model_dump(exclude={"kind"})
    job, is_new = job_queue(workspace).submit("forget", fields, idempotency_key=f"proof of {run.job_id}")
    if is_new:
        record_audit_act(workspace, "job submitted", job.id, kind="forget")
    return result | {"proof_job": job.id}


def prove_forgetting(workspace: Workspace, run: Run) -> JSONObject:
    """Learn each new version again from only the remaining rows, and remove the statistics that contain the others."""
    request = ForgetRequest(**run.request)
    marked, trained = run.receipts["mark"], run.receipts["retrain"]["versions"]
    affected = models_affected_by_forgetting(workspace, request)
    if request.dry_run:
        knows = marked["n_rows"] or marked.get("holding")
        would = [version.name for version in affected] if request.retrain and knows else []
        answer = {"is_dry_run": True, "n_rows": marked["n_rows"], "files": marked["files"], "would_retrain": would}
        # Which a job of an earlier release has not noted.
        answer |= {"holding": marked.get("holding", []), "prices": marked.get("prices", [])}
        return answer if marked.get("served") is None else answer | {"served": marked["served"]}
    _, ledger = _place(workspace, request, affected, run)
    # First: they hold the rows, whatever comes of the proofs.
    n_removed = discard_forgotten_statistics(ledger)
    predicates = [RowPredicate(where) for where in request.conditions]
    held = {digest for each in predicates for digest, n in ledger.forgotten.footers(each.text).items() if n}
    dataset_definitions.discard_dataset_schemas(workspace.control, held)
    empty_write_ahead_log(workspace.control)  # of the former schemas; if it is busy, a server tries again each hour
    proofs = []
    for entry in trained if request.prove and not request.prove_later else ():
        version = find_version(workspace, f"{entry['model']}@{entry['version']}")
        proofs.append({"model": version.name, "version": version.version} | _proof(workspace, version, run))
    served = {} if marked.get("served") is None else {"served": marked["served"]}
    subject = str(request.dataset or _name(str(request.model)))
    record_audit_act(workspace, "rows forgotten", subject, models=[entry["model"] for entry in trained])
    holding = [list(_holding(workspace, request, ledger.forgotten.footers(each.text), each)) for each in predicates]
    return (
        served
        | {
            "n_rows": marked["n_rows"],
            "files": marked["files"],
            "versions": trained,
            "proofs": proofs,
            "statistics_removed": n_removed,
            "still_holding": list(dict.fromkeys(version for versions in holding for version in versions)),
        }
        | ({"holding_each": holding} if len(holding) > 1 else {})
    )


def models_affected_by_forgetting(workspace: Workspace, request: ForgetRequest) -> list[ModelVersion]:
    """Return the newest versions trained on the data; NotFound if no data has that name."""
    if request.model is not None:
        return [find_version(workspace, f"{_name(request.model)}@latest")]
    get_dataset(workspace, str(request.dataset))
    return newest_versions_of_dataset(workspace, str(request.dataset))


def _request_of(version: ModelVersion) -> JSONObject:
    text = provenance.stored_provenance(version).get("request")
    try:
        return TrainRequest(**current_request(json.loads(text or ""))).model_dump()
    except (ValueError, TypeError, ValidationError) as error:
        raise InvalidRequest(
            f"{version.name}@{version.version} does not record how it was trained, or an earlier release recorded it. Train it again.",
            field="model",
        ) from error


def _request_again(version: ModelVersion) -> JSONObject:
    """Return the request that retrains a version without some rows, with schema and cut points from the remaining rows
    alone.
    """
    # A stream cannot forget: it is learned anew, and not on top of what has learned the rows or may have.
    request = _request_of(version)
    return request | {"update": not recipes.learner_recipe(request["learner"]).goes_on, "cuts": "fresh"}


def _training_on_files(version: ModelVersion) -> JSONObject:
    request = _request_of(version)
    if request["uris"] is None:
        raise InvalidRequest(
            f"{version.name} was trained on the data set {request['dataset']!r}: forget rows of that data set.",
            field="model",
        )
    return request


def _place(
    workspace: Workspace, request: ForgetRequest, affected: Sequence[ModelVersion], run: Run
) -> tuple[Source, Ledger]:
    """Return all files of the data, and its ledger."""
    if request.dataset is not None:
        train = TrainRequest(dataset=request.dataset, learner="nb", model="any")
    else:
        train = TrainRequest(**_training_on_files(affected[0]) | {"update": True})
    source = open_training_source(workspace, train, run)
    ledger = statistics_ledger(workspace, train, run)
    return source_with_verified_hashes(source, ledger), ledger


def _proof(workspace: Workspace, version: ModelVersion, run: Run) -> JSONObject:
    """Compare the version, schema included, with a model learned from the remaining rows without stored statistics."""
    noted = provenance.stored_provenance(version)
    snapshot, by = noted.get("snapshot"), provenance.kept_back(version)
    request = provenance.request_at_snapshot(TrainRequest(**_request_of(version)), json.loads(snapshot or "null"))
    if not run.is_local:
        check_data_roots(learner_parameter_files(request.parameters), workspace.settings)
    trained = load_model(*map_compiled(version.arrow_path))
    source = open_training_source(workspace, request, run)
    rows = select_training_rows(workspace, source, request, run, by)
    parameters = provenance.parameters_with_decided_memory(
        parameters_with_file_paths(request.parameters), request.learner, trained
    )
    overrides = training_column_overrides(workspace, request)
    decides_by = by.decides_by(request.holdout_by)
    learner = recipes.learner(request.learner, parameters, trained.schema.target, None, overrides, decides_by)
    threads = available_threads(workspace.settings)
    again = drive(learner, [Part(rows.learned.source)], threads=threads, on_progress=progress_reporter(run.report))
    (header, arrays), (fresh_header, fresh) = _learned(trained), _learned(again)
    is_equal = header == fresh_header and arrays.keys() == fresh.keys()
    is_equal = is_equal and all(np.array_equal(arrays[name], fresh[name], equal_nan=True) for name in arrays)
    return {"is_equal": is_equal, "n_rows": fresh_header["facts"]["n_rows"]}


def _learned(model: Any) -> tuple[JSONObject, JSONObject]:
    """Return header and arrays of a model without facts that do not come from rows; facts are in JSON form, where
    tuples are lists.
    """
    header, arrays = model.to_arrays()
    facts = json.loads(json.dumps({name: fact for name, fact in header["facts"].items() if name not in OWN_FACTS}))
    return {**header, "facts": facts}, arrays


def _holding(
    workspace: Workspace, request: ForgetRequest, searched: Mapping[str, int], *predicates: RowPredicate
) -> Iterator[str]:
    """Yield existing versions that were learned with the rows; deleting them is left to their owner.

    This includes models trained on the same files under another name. A file that was never searched, because it was
    gone by then, may have held such rows: it counts for the models of the data itself. `searched` has the rows of
    each file, by its digests: a file that another model reads differently is identified by the digest of its stored
    bytes.
    """
    rules = {forgotten_rule_sha256(predicate.text) for predicate in predicates}
    for model in iterate_page_items(partial(list_models, workspace)):
        for version in sorted(_versions(workspace, model.name), key=lambda version: version.version):
            is_ours = model.name == _name(request.model) if request.model else version.dataset == request.dataset
            unknown = 1 if is_ours else 0
            holds = any(
                any(searched[digest] for digest in known) if known else unknown
                for file in version.files
                for known in [
                    [digest for digest in dataset_definitions.recorded_file_digests(file) if digest in searched]
                ]
            )
            if holds and not rules <= set(_rules_of(version)):
                yield f"{version.name}@{version.version}"


def _rules_of(version: ModelVersion) -> list[str]:
    """SHA-256 of each rule in force when a version was learned; empty if its file is damaged."""
    try:
        return list(json.loads(provenance.stored_provenance(version).get("forgotten", "[]")))
    except CorruptFile:
        return []


def _name(reference: str) -> str:
    return reference.partition("@")[0]


def _versions(workspace: Workspace, name: str) -> Iterator[ModelVersion]:
    """Yield all versions of a model, newest first."""
    return iter(iterate_page_items(partial(list_versions, workspace, name)))


def withdraw_forgetting_rule(
    workspace: Workspace,
    name: str,
    where: str,
    *,
    by: str,
    reason: str,
    kind: Literal["dataset", "model"] | None = None,
) -> JSONObject:
    """Withdraw the rule of a condition: later trainings read those rows again. Existing models do not change.

    `name` is of a data set, one that was deleted included, or of a model that was trained on files; without a `kind` it is
    whichever has the rule. Who does it and why are kept with the rule. Returns `name`, `where`, `withdrawn_at`, `by`,
    `reason`, and the other names to which the rule applies (`still_under`). Raises InvalidRequest if there is no such
    rule; NotFound, CorruptFile or Unwritable.
    """
    if not reason.strip():
        raise InvalidRequest("Give a reason, which is kept with the rule.", field="reason")
    layout, known = workspace.layout, rule_conditions_by_path(workspace.control)
    places = {"dataset": layout.dataset_directory(name) / RULES, "model": layout.model_directory(name) / DATA / RULES}
    condition, done = where.strip(), None
    standing: set[str] = set()
    for path in (path for of, path in places.items() if kind in {of, None}):
        forgotten = Forgotten(path)
        # Of a rule that the file has lost nobody knows whether it stood.
        rules = {rule.where for rule in forgotten.rules()} | (known.get(path, frozenset()) - forgotten.conditions())
        standing |= rules
        if condition in rules:
            withdrawal = forgotten.withdraw(condition, by, reason)
            save_forgetting_rules(workspace, forgotten)
            record_audit_act(workspace, "rule of forgotten rows withdrawn", name)
            done = {"name": name, "where": condition, "withdrawn_at": withdrawal["at"], "by": by, "reason": reason}
    if done is None:
        _check_exists(workspace, name, kind, has_rules=bool(standing))
        words = "; ".join(sorted(standing)) or "none"
        raise InvalidRequest(f"The name {name!r} has no such rule. Its rules: {words}.", field="where")
    return {**done, "still_under": _names_with(workspace, condition)}


def _check_exists(workspace: Workspace, name: str, kind: str | None, *, has_rules: bool) -> None:
    if has_rules or (kind is None and dataset_definitions.is_registered_dataset(workspace.control, name)):
        return
    if kind == "dataset":
        dataset_definitions.get_dataset(workspace.control, name)
    else:
        find_version(workspace, f"{name}@latest")


def _names_with(workspace: Workspace, where: str) -> list[str]:
    """Return the names under which a rule applies; unreadable files are reported by the doctor."""
    names = []
    for path in forgetting_rule_files(workspace):
        try:
            stands = any(rule.where == where for rule in Forgotten(path).rules())
        except CorruptFile:
            continue
        if stands:
            names.append(path.relative_to(workspace.layout.root).parts[1])
    return names
