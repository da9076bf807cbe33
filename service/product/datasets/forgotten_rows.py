"""Rows that are forgotten: found, left out of training, and taken out of what is stored."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from learners.passes.sources.source import Condition, Fragment, Mask, Source, SourceFile, file_identity
from learners.passes.sources.source_files import split_file_identity
from service.jobs.steps import Report, Run
from service.product.datasets.dataset_statistics import (
    Ledger,
    statistics_ledger,
)
from service.product.datasets.forgetting_rules import (
    forgetting_rules_of_files,
    read_forgetting_rules,
    save_forgetting_rules,
)
from service.requests.json_values import JSONMapping
from service.requests.problems import Conflict
from service.requests.requests import TrainRequest
from service.workspace import Workspace
from storage.datasets.forgotten import Forgotten
from storage.datasets.predicates import RowPredicate


@dataclass(frozen=True)
class Not(Condition):
    """Rows that a predicate does not match."""

    predicate: RowPredicate

    @property
    def text(self) -> str:
        """The condition in words."""
        return f"not ({self.predicate.text})"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the condition reads."""
        return self.predicate.columns

    def mask(self, rows: pa.RecordBatch, file: SourceFile, fragment: Fragment, offset: int) -> Mask:
        """(n_rows,) bool."""
        del file, fragment, offset
        names = list(self.columns)
        return ~self.predicate.mask(rows.select(names))


def inherit_forgetting_rules(workspace: Workspace, source: Source, ledger: Ledger) -> Forgotten:
    """The rules of some data, kept with it, too, where they were made under another name."""
    forgotten = forgetting_rules_of_files(workspace, source, ledger.rules_path)
    save_forgetting_rules(workspace, forgotten)
    return forgotten


def check_forgetting_rules(forgotten: Forgotten, name: str, source: Source) -> None:
    """Refuse data under a name whose rules of forgotten rows cannot be applied to it (Conflict)."""
    for rule in forgotten.rules():
        for column in RowPredicate(rule.where).columns:
            if column not in source.arrow_schema.names:
                raise Conflict(
                    f"Rows were forgotten under the name {name!r} ({rule.where}), and these files have no column {column!r}: "
                    "give them another name.",
                    name=name,
                )


def count_matching_rows(
    source: Source,
    predicate: RowPredicate,
    files: Sequence[int],
    forgotten: Forgotten | None = None,
    report: Report | None = None,
    *,
    is_strict: bool = False,
) -> dict[int, int]:
    """How many rows of each file a predicate matches; what `forgotten` knows of a file is not counted again.

    What is found is noted there, and not saved. `report` gets the progress after each batch, and may raise. A strict search
    fails where the condition cannot be computed.
    """
    counts: dict[int, int] = {}
    searched = {} if forgotten is None else forgotten.counts(predicate.text)
    n_done, n_total = 0, sum(source.files[index].n_rows for index in files)
    for index in files:
        identity = file_identity(source.files[index])
        known = searched.get(identity)
        if known is None:
            known = 0
            for batch in source.only({index}).batches(list(predicate.columns)):
                known += int(np.count_nonzero(predicate.mask(batch, is_strict=is_strict)))
                if report is not None:
                    report({"stage": "searching rows", "rows_done": n_done, "rows_total": n_total})
            if forgotten is not None:
                forgotten.remember(predicate.text, identity, source.files[index].footer_sha256, known)
        counts[index] = known
        n_done += source.files[index].n_rows
    return counts


class ForgottenMeanwhile(Conflict):
    """Rows were forgotten while a job learned them."""


def check_forgotten_meanwhile(workspace: Workspace, request: TrainRequest, learned: JSONMapping, run: Run) -> None:
    """Refuse to publish a model that was learned before the last rule was made (ForgottenMeanwhile)."""
    ledger = statistics_ledger(workspace, request, run)
    rules = read_forgetting_rules(workspace, ledger.rules_path).rules()
    if missed := {rule.where for rule in rules} - set(learned.get("forgotten", ())):
        discard_forgotten_statistics(ledger)
        raise ForgottenMeanwhile(
            f"Rows were forgotten while this job learned from them ({', '.join(sorted(missed))}): nothing is published. "
            "Retry the job."
        )


def discard_forgotten_statistics(ledger: Ledger) -> int:
    """Remove the statistics that hold forgotten rows; returns how many there were."""
    if ledger.store is None:
        return 0
    forgotten = ledger.forgotten
    rules: dict[str, set[str]] = {}
    for rule in forgotten.rules():
        for file, n_rows in forgotten.counts(rule.where).items():
            if n_rows:
                rules.setdefault(file, set()).add(Not(RowPredicate(rule.where)).text)
    n_removed = 0
    for entry in ledger.store.entries():
        parts = [split_file_identity(identity) for identity in entry.files]
        if any(file in rules and not rules[file] <= set(conditions or ()) for file, conditions in parts):
            ledger.store.discard(entry.key)
            n_removed += 1
    return n_removed
