"""Row selection of a training job: window, forgotten rows and hold-out, for learning and for evaluation."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from learners.kernels.arrays import Floats, Integers
from learners.kernels.random import STEP, random_bits_array
from learners.passes.row_rules import NullClass, apply_schema_null_class, null_class_rule, row_weight_rule
from learners.passes.sources.adapted_files import stored_row_numbers
from learners.passes.sources.row_filter import Selection, select_newest_rows
from learners.passes.sources.source import Condition, Fragment, Mask, Source, SourceFile
from learners.registry.recipes import learner_recipe
from learners.schema import Schema
from service.jobs.steps import Run
from service.product.datasets.data_sources import open_data_source
from service.product.datasets.dataset_statistics import (
    source_with_earlier_files,
    source_with_verified_hashes,
    statistics_ledger,
)
from service.product.datasets.forgotten_rows import (
    check_forgetting_rules,
    inherit_forgetting_rules,
    save_forgetting_rules,
    select_unforgotten_rows,
    unforgotten_row_conditions,
)
from service.product.datasets.later_rows import KeptBack, choose_kept_back, divide_later
from service.requests.json_values import JSONMapping, JSONObject
from service.requests.requests import TrainRequest
from service.settings import available_threads
from service.workspace import Workspace
from storage.datasets import dataset_definitions
from storage.datasets.predicates import RowPredicate


@dataclass(frozen=True)
class Share(Condition):
    """Condition for one part of a random split of the rows.

    A row's part depends on the seed, on the bytes of its file and on its number there: not on how columns are read, on other
    files or on rows that a lake table has deleted. `share` is kept back, 0 <= share < 1. `is_by_bytes`: the identity of the
    file holds more than its bytes. Such files divided otherwise in earlier releases, so their parts have other words here.
    """

    share: float
    seed: int
    is_kept_back: bool
    is_by_bytes: bool = False

    @property
    def text(self) -> str:
        """Description of the condition."""
        words = f"{'kept back' if self.is_kept_back else 'not kept back'} {self.share} {self.seed}"
        return f"{words} by bytes" if self.is_by_bytes else words

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the condition reads: none."""
        return ()

    def mask(self, rows: pa.RecordBatch, file: SourceFile, fragment: Fragment, offset: int) -> Mask:
        """Mask of matching rows, (n_rows,) bool."""
        stored = file.stored_sha256 or file.footer_sha256
        key = int(hashlib.sha256(f"{self.seed} {stored}".encode()).hexdigest()[:16], 16)
        numbers = (fragment.row_group << 40) + stored_row_numbers(file, fragment.row_group, offset, rows.num_rows)
        kept_back = row_hash_uniforms(key, numbers) < self.share
        return kept_back if self.is_kept_back else ~kept_back


def row_hash_uniforms(key: int, numbers: Integers) -> Floats:
    """Return pseudorandom numbers in [0, 1), one for each row number."""
    counters = (numbers.astype(np.uint64) + np.uint64(1)) * STEP + np.uint64(key)
    return (random_bits_array(counters) >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclass(frozen=True)
class TrainingRows:
    """Rows of one training: those to learn from and those held out for evaluation; `rules` exclude forgotten rows."""

    learned: Selection
    kept_back: Source | None
    rules: tuple[str, ...] = ()
    by: KeptBack | None = None  # how those that are kept back were chosen


def open_training_source(workspace: Workspace, request: TrainRequest, run: Run, schema: Schema | None = None) -> Source:
    """Open all rows of a training's files, in the types of its schema if given; OutsideRoots, SourceError or NotFound."""
    return open_data_source(
        workspace,
        request.uris,
        dataset=request.dataset,
        is_remote=not run.is_local,
        columns=request.columns,
        schema=schema,
        at=request.at,
    )


def open_evaluation_source(
    workspace: Workspace,
    uris: Sequence[str] | None,
    dataset: str | None,
    run: Run,
    schema: Schema | None,
    columns: JSONMapping | None = None,
) -> Source:
    """Open evaluation rows with their classes, in the types of the model's schema; OutsideRoots, SourceError or
    NotFound.
    """
    rows = open_data_source(
        workspace, uris, dataset=dataset, is_remote=not run.is_local, schema=schema, columns=columns
    )
    return rows if schema is None else apply_schema_null_class(rows, schema)


def select_training_rows(
    workspace: Workspace, source: Source, request: TrainRequest, run: Run, by: KeptBack | None = None
) -> TrainingRows:
    """Select the rows of a request from all files of the data set: those in the window, without forgotten rows.

    The rules of the workspace follow the files: one that was made for other data with the same files becomes a rule of
    these too. `by` is how the training chose what it kept back, by default chosen now; rows kept back that it learned after the measure
    are among the learned ones. New files are searched for forgotten rows, with progress. Raises InvalidParameter, UnknownColumn, SourceError,
    EmptyData, InvalidPredicate, Conflict or CorruptFile.
    """
    ledger = statistics_ledger(workspace, request, run)
    source = source_with_earlier_files(source_with_verified_hashes(source, ledger), ledger)
    forgotten = inherit_forgetting_rules(workspace, source, ledger)
    check_forgetting_rules(forgotten, str(request.dataset or request.model), source)
    null_class = _null_class(workspace, request)
    if null_class is not None:
        source = source.completed(null_class.completed)
    weight = row_weight_rule(training_column_overrides(workspace, request))
    if weight is not None:
        source = source.weighted(weight)
    chosen = Selection(source, dict.fromkeys(range(len(source.files)), ()))
    if request.window is not None:
        counting = unforgotten_row_conditions(source, forgotten, run.report)
        chosen = select_newest_rows(source, request.window, request.timestamp, counting)
    chosen = chosen.and_all([rule for rule in (null_class, weight) if rule is not None])
    rules = tuple(rule.where for rule in forgotten.rules())
    chosen = select_unforgotten_rows(chosen, list(map(RowPredicate, rules)), forgotten, run.report)
    save_forgetting_rules(workspace, forgotten)
    if request.keeps_back:
        if by is None:
            overrides, threads = training_column_overrides(workspace, request), available_threads(workspace.settings)
            target = _target(workspace, request) if learner_recipe(request.learner).takes_target else None
            by = choose_kept_back(chosen, request, target, overrides, threads)
        if by.by == "random":
            learned, kept_back = (_share_of(chosen, request, is_kept_back) for is_kept_back in (False, True))
        else:
            learned, kept_back = divide_later(chosen, by)
        return TrainingRows(chosen if by.is_learned else learned, kept_back.source, rules, by)
    return TrainingRows(chosen, None, rules)


def _share_of(chosen: Selection, request: TrainRequest, is_kept_back: bool) -> Selection:
    """Return the held-out part of the selection, or the other part."""
    files = chosen.raw.files
    return Selection(
        chosen.raw,
        {
            index: (*own, Share(request.holdout, request.seed, is_kept_back, bool(files[index].stored_sha256)))
            for index, own in chosen.wanted.items()
        },
    )


def training_column_overrides(workspace: Workspace, request: TrainRequest) -> JSONObject:
    """Return the column overrides: those of the request, completed by those of the data set."""
    known = (
        {}
        if request.dataset is None
        else dict(dataset_definitions.get_dataset(workspace.control, request.dataset).columns)
    )
    return known | request.columns


def _target(workspace: Workspace, request: TrainRequest) -> str | None:
    """Return the target column of the request, or else of the data set."""
    if request.target is None and request.dataset is not None:
        return dataset_definitions.get_dataset(workspace.control, request.dataset).target
    return request.target


def _null_class(workspace: Workspace, request: TrainRequest) -> NullClass | None:
    """Return the rule for rows without a class."""
    return null_class_rule(_target(workspace, request), training_column_overrides(workspace, request))
