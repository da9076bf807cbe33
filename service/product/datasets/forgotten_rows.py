"""Forgotten rows: the rules stored with data, and their effect on training and on stored statistics."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from learners.errors import names_with_suggestions
from learners.passes.sources.row_filter import Selection
from learners.passes.sources.source import Condition, Fragment, Mask, Source, SourceFile, file_identity
from learners.passes.sources.source_files import split_file_identity
from service.jobs.steps import Report, Run
from service.product.datasets.dataset_statistics import DATA, RULES, Ledger, statistics_ledger, unreadable_files
from service.requests.json_values import JSONMapping
from service.requests.problems import Conflict, InvalidRequest
from service.requests.requests import TrainRequest
from service.workspace import Workspace
from storage.datasets.forgotten import Forgotten, record_forgotten_rules, rule_conditions_by_path
from storage.datasets.predicates import RowPredicate
from storage.errors import CorruptFile

SEARCHED_BYTES = 8 << 20  # of a condition's columns, judged at once: a million whole numbers


@dataclass(frozen=True)
class Not(Condition):
    """Rows that a predicate does not match."""

    predicate: RowPredicate
    # How many rows of each row group of the file match, without groups where none does.
    matches: Mapping[int, int] | None = field(default=None, compare=False, repr=False)

    @property
    def text(self) -> str:
        """Description of the condition."""
        return f"not ({self.predicate.text})"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the condition reads."""
        return self.predicate.columns

    def mask(self, rows: pa.RecordBatch, file: SourceFile, fragment: Fragment, offset: int) -> Mask:
        """Mask of matching rows, (n_rows,) bool."""
        del file, offset
        if self.matches is not None and fragment.row_group not in self.matches:
            return np.ones(rows.num_rows, bool)
        names = list(self.columns)
        return ~self.predicate.mask(rows.select(names))

    def left_out(self) -> Mapping[int, int] | None:
        """Return how many rows of each row group match; None if unknown."""
        return self.matches


def inherit_forgetting_rules(workspace: Workspace, source: Source, ledger: Ledger) -> Forgotten:
    """Add the rules made for the same files under other names to those of this data, store them, and return all."""
    forgotten = forgetting_rules_of_files(workspace, source, ledger.rules_path)
    save_forgetting_rules(workspace, forgotten)
    return forgotten


def check_forgetting_rules(forgotten: Forgotten, name: str, source: Source) -> None:
    """Refuse data whose rules of forgotten rows cannot be applied to it (Conflict)."""
    for rule in forgotten.rules():
        for column in RowPredicate(rule.where).columns:
            if column not in source.arrow_schema.names:
                raise Conflict(
                    f"Rows were forgotten under the name {name!r} ({rule.where}), but these files have no column {column!r}: use another "
                    "name for them.",
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
    """Count the rows of each file that a predicate matches; files already counted in `forgotten` are not read again.

    What is found is noted there, and not saved. `report` gets the progress after each batch, and may raise. A strict search
    fails where the condition cannot be computed in the first file. Row groups whose bounds exclude the condition are not read.
    Batches are judged together: DuckDB takes longer to begin with one than to compare its rows.
    """
    counts: dict[int, int] = {}
    searched = {} if forgotten is None else forgotten.counts(predicate.text)
    n_done, n_total = 0, sum(source.files[index].n_rows for index in files)
    for index in files:
        identity = file_identity(source.files[index])
        known = searched.get(identity)
        if known is None:
            groups: dict[int, int] = {}
            is_first = is_strict and index == files[0]
            reading = partial(_progress_of_search, report, n_done, n_total)
            for together in _searched_together(source.only({index}), predicate, reading, all_of_it=is_first):
                of_row = np.repeat([group for group, _ in together], [batch.num_rows for _, batch in together])
                rows = pa.Table.from_batches([batch for _, batch in together]).unify_dictionaries()
                found = of_row[predicate.mask(rows, is_strict=is_first)]
                for group, n in zip(*np.unique(found, return_counts=True), strict=True):
                    groups[int(group)] = groups.get(int(group), 0) + int(n)
            known = sum(groups.values())
            if forgotten is not None:
                for digest in source.files[index].digests:
                    forgotten.remember(predicate.text, identity, digest, known, groups)
        counts[index] = known
        n_done += source.files[index].n_rows
    return counts


def _progress_of_search(report: Report | None, n_done: int, n_total: int) -> None:
    if report is not None:
        report({"stage": "searching rows", "rows_done": n_done, "rows_total": n_total})


def _searched_together(
    source: Source, predicate: RowPredicate, read: Callable[[], None], *, all_of_it: bool
) -> Iterator[list[tuple[int, pa.RecordBatch]]]:
    """Yield batches of the predicate's columns with their row groups, up to `SEARCHED_BYTES` at a time.

    Leaves out row groups whose bounds exclude the condition. `read` is called after each batch.
    """
    together: list[tuple[int, pa.RecordBatch]] = []
    n_bytes, equalities = 0, predicate.equalities(all_of_it=all_of_it)
    for fragment in source.fragments:
        if not all(source.may_equal(fragment, *equal) for equal in equalities):
            continue
        for batch in source.read(fragment, list(predicate.columns)):
            if together and (n_bytes >= SEARCHED_BYTES or batch.schema != together[0][1].schema):
                yield together
                together, n_bytes = [], 0
            together.append((fragment.row_group, batch))
            n_bytes += batch.nbytes
            read()
    if together:
        yield together


def select_unforgotten_rows(
    chosen: Selection, predicates: Sequence[RowPredicate], forgotten: Forgotten, report: Report | None = None
) -> Selection:
    """Select the rows that match none of some conditions; only files with matching rows are restricted."""
    source = chosen.raw
    for predicate in predicates:
        counts = count_matching_rows(source, predicate, sorted(chosen.wanted), forgotten, report)
        groups = forgotten.groups(predicate.text)
        files = {
            index: (*conditions, Not(predicate, groups.get(file_identity(source.files[index]))))
            if counts[index]
            else conditions
            for index, conditions in chosen.wanted.items()
        }
        chosen = Selection(source, files)
    return chosen


def unforgotten_row_conditions(
    source: Source, forgotten: Forgotten, report: Report | None = None
) -> Callable[[int], Sequence[Condition]]:
    """Return a function of a file's position that gives the conditions of its rows that are not forgotten."""
    predicates = [RowPredicate(rule.where) for rule in forgotten.rules()]

    def conditions(index: int) -> Sequence[Condition]:
        own = Selection(source, {index: ()})
        return select_unforgotten_rows(own, predicates, forgotten, report).wanted[index]

    return conditions


class ForgottenMeanwhile(Conflict):
    """Raised if rows were forgotten while a job was learning them."""


def check_forgotten_meanwhile(workspace: Workspace, request: TrainRequest, learned: JSONMapping, run: Run) -> None:
    """Refuse to publish a model that was learned before the newest rule was made (ForgottenMeanwhile)."""
    ledger = statistics_ledger(workspace, request, run)
    rules = read_forgetting_rules(workspace, ledger.rules_path).rules()
    if missed := {rule.where for rule in rules} - set(learned.get("forgotten", ())):
        discard_forgotten_statistics(ledger)
        raise ForgottenMeanwhile(
            f"Rows were forgotten while this job learned from them ({', '.join(sorted(missed))}): nothing is published. "
            "Retry the job."
        )


def discard_forgotten_statistics(ledger: Ledger) -> int:
    """Remove the statistics and schemas that contain forgotten rows; return the number of statistics removed."""
    ledger.discard_schemas()
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


SHOWN = 5  # rules, in a message


def forgetting_rule_files(workspace: Workspace) -> list[Path]:
    """Return all files of rules, including those of deleted data sets and those that are missing."""
    layout = workspace.layout
    paths = {*layout.datasets.glob(f"*/{RULES}"), *layout.models.glob(f"*/{DATA}/{RULES}")}
    return sorted(paths | rule_conditions_by_path(workspace.control).keys())


def read_forgetting_rules(workspace: Workspace, path: Path) -> Forgotten:
    """Read the rules in a file; CorruptFile if it was removed, or is older than its newest rule."""
    forgotten = Forgotten(path)
    if lost := rule_conditions_by_path(workspace.control).get(path, frozenset()) - forgotten.conditions():
        shown = "; ".join(sorted(lost)[:SHOWN]) + (f"; and {len(lost) - SHOWN} more" if len(lost) > SHOWN else "")
        raise CorruptFile(
            path,
            f"it lacks rules of forgotten rows ({shown}), so those rows would be learned again. Restore the file from a "
            "backup, forget the same rows once more, or have an administrator withdraw the rules (fewpass forget --withdraw).",
        )
    return forgotten


def forgetting_rules_of_files(workspace: Workspace, source: Source, own: Path) -> Forgotten:
    """Return the rules in a file, and those made for the same data files under other names."""
    forgotten = read_forgetting_rules(workspace, own)
    digests = {digest for file in source.files for digest in file.digests}
    for path in forgetting_rule_files(workspace):
        if path != forgotten.path:
            other = read_forgetting_rules(workspace, path)
            for rule in other.rules():
                if any(n and digest in digests for digest, n in other.footers(rule.where).items()):
                    forgotten.add(rule.where, since=rule.forgotten_at)
    return forgotten


def save_forgetting_rules(workspace: Workspace, forgotten: Forgotten) -> None:
    """Write changed rules (Unwritable, CorruptFile), and record all rules, old ones included, in the control database."""
    forgotten.save()
    record_forgotten_rules(workspace.control, forgotten.path, forgotten.conditions())


def damaged_forgetting_rules(workspace: Workspace) -> list[CorruptFile]:
    """Return an error for each damaged file of rules."""
    return unreadable_files(forgetting_rule_files(workspace), partial(read_forgetting_rules, workspace))


def check_condition_columns(predicate: RowPredicate, names: Sequence[str]) -> None:
    """Refuse a condition that names a column missing from the data (InvalidRequest)."""
    for column in predicate.columns:
        if column not in names:
            named = names_with_suggestions([column], names)
            raise InvalidRequest(f"The condition names a column that the data does not have: {named}.", field="where")
