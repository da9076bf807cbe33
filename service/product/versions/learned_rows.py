"""Rows that a version has learned, among those on which it is measured."""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass

from learners.errors import SourceError
from learners.passes.sources.row_filter import Since, file_time_bounds
from learners.passes.sources.source import Condition, Source, SourceFile
from learners.schema.schema import Schema
from learners.schema.times_and_durations import moment_text
from service.product.datasets.later_rows import First, KeptBack
from service.product.datasets.training_rows import Share
from service.product.versions.provenance import kept_back, stored_provenance
from service.requests.recorded import current_request
from service.requests.requests import TrainRequest
from service.workspace import Workspace
from storage.datasets.dataset_definitions import recorded_file_digests
from storage.models.model_versions import ModelVersion, get_version


@dataclass(frozen=True)
class LearnedRows:
    """Rows of a version's training: the number of rows before each file, by digest; its paths; and what it kept back."""

    n_before: dict[str, int]
    paths: frozenset[str]
    by: KeptBack | None  # None if it kept nothing back
    share: float = 0.0
    seed: int = 0

    @classmethod
    def of(cls, version: ModelVersion) -> LearnedRows:
        """Read them from a version; one of another program has no files, so it has learned no row that is known."""
        text = stored_provenance(version).get("request")
        n_before: dict[str, int] = {}
        passed, paths = 0, frozenset(str(file["path"]) for file in version.files)
        for file in version.files:
            n_before |= dict.fromkeys(recorded_file_digests(file), passed)
            passed += int(str(file["n_rows"]))
        if text is None:
            return cls(n_before, paths, None)
        request = TrainRequest(**current_request(json.loads(text)))
        by = kept_back(version) if request.keeps_back else None
        return cls(n_before, paths, by, request.holdout, request.seed)

    def known_files(self, source: Source) -> list[int]:
        """Return the positions of the files that it has learned from."""
        return [index for index, file in enumerate(source.files) if self._place(file) is not None]

    def changed_files(self, source: Source) -> list[int]:
        """Return the positions of files that it has learned from with another content; unless it kept rows back by
        time, the rows that it has learned are unknown.
        """
        if self.by is not None and self.by.by == "time" and self.by.column in source.arrow_schema.names:
            return []
        files = enumerate(source.files)
        return [i for i, file in files if file.path in self.paths and self._place(file) is None]

    def keeps_back_as(self, by: KeptBack, share: float, seed: int) -> bool:
        """Return whether it kept back the same rows at random."""
        return self.by is not None and self.by.by == by.by == "random" and (self.share, self.seed) == (share, seed)

    def unlearned(self, source: Source) -> Source:
        """Select the rows that it has not learned: those of other files, those that it kept back, and later ones.

        A file whose content has changed since may have only such rows added, so none of its rows counts as unlearned, but by
        their times.
        """
        chosen = {index: self._unlearned(source, file) for index, file in enumerate(source.files)}
        return source.narrowed({index: own for index, own in chosen.items() if own is not None})

    def _place(self, file: SourceFile) -> int | None:
        return next((self.n_before[digest] for digest in file.digests if digest in self.n_before), None)

    def _unlearned(self, source: Source, file: SourceFile) -> tuple[Condition, ...] | None:
        """Return the conditions of the rows of a file that were not learned; None if all were learned."""
        place, by = self._place(file), self.by
        is_by_time = by is not None and by.by == "time" and by.column in source.arrow_schema.names
        if place is None and file.path not in self.paths:
            return ()
        if is_by_time:
            assert by is not None
            return (Since(by.column, datetime.datetime.fromisoformat(by.newest or by.until)),)
        if by is None or place is None or by.is_learned or by.by == "time":
            return None
        if by.by == "random":
            return (Share(self.share, self.seed, True, bool(file.stored_sha256)),)
        n_first = min(max(by.n_first - place, 0), file.n_rows)
        return None if n_first == file.n_rows else (First(n_first, True),)


def learned_rows_warnings(workspace: Workspace, name: str, number: int, source: Source) -> list[str]:
    """Return a warning if a version is measured on files that it has learned from, or on paths whose content has changed since."""
    learned = LearnedRows.of(get_version(workspace.control, name, number))
    changed = [i for i, file in enumerate(source.files) if file.path in learned.paths]
    known = learned.known_files(source)
    if not known and not changed:
        return []
    which, rows = (known, "rows") if known else (changed, "an earlier content")
    files = f"{len(which)} of {len(source.files)} files" if len(source.files) > 1 else source.files[which[0]].path
    return [
        f"{name}@{number} has learned {rows} of {files}: measured on what it has learned, a model looks better than it is. Measure it on other files."
    ]


def later_rows_warnings(workspace: Workspace, name: str, number: int, schema: Schema, source: Source) -> list[str]:
    """Return a warning if all rows are later than training by the column that chose its newest rows and was left out.

    `schema.encoding.later_times` compares the columns that were learned.
    """
    by = LearnedRows.of(get_version(workspace.control, name, number)).by
    if by is None or by.by != "time" or by.column not in source.arrow_schema.names:
        return []
    if by.column in {attribute.name for attribute in schema.attributes}:
        return []
    try:
        firsts = [file_time_bounds(source, index, by.column)[0] for index in range(len(source.files))]
    except SourceError:  # the file holds no times there, which a model that left the column out need not know
        return []
    first = min((moment for moment in firsts if moment is not None), default=None)
    last = datetime.datetime.fromisoformat(by.newest or by.until)
    if first is None or _in_utc(first) <= _in_utc(last):
        return []
    return [
        f"All rows are later than those the model learned from: {by.column!r} ended at {moment_text(last)} in training and "
        f"begins at {moment_text(first)} here. Evaluate the model on rows of that time, or train it with newer rows."
    ]


def _in_utc(moment: datetime.datetime) -> datetime.datetime:
    return moment.replace(tzinfo=datetime.UTC) if moment.tzinfo is None else moment
