"""Data kept between trainings: statistics, the last schema, and notes about files."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from learners.passes.sources.lake.lake_tables import KnownSnapshot
from learners.passes.sources.source import Source, SourceFile, file_identity
from learners.passes.sources.source_files import split_file_identity
from learners.schema import Schema
from service.jobs.steps import Report, Run
from service.requests.json_values import JSONMapping, JSONObject
from service.requests.requests import TrainRequest
from service.workspace import Workspace
from storage.datasets.forgotten import Forgotten, forgotten_rule_sha256
from storage.datasets.statistics import CheckpointFile, Note, StatisticStore
from storage.errors import CorruptFile, Unwritable
from storage.files.atomic_files import json_with_checksum, parse_checked_json, write_file_atomically

DATA = "data"  # beside the versions of a model
RULES, STATISTICS, SCHEMAS = "forgotten.json", "statistics", "schemas"
CONTENTS, COLUMNS = "contents.json", "columns.json"  # of files that were verified, and of the columns' order
SNAPSHOT = "snapshot.json"  # of a lake table, that the last training counted
_OF_DATA = (COLUMNS, CONTENTS, SNAPSHOT, f"{SCHEMAS}/*.json", f"{STATISTICS}/*.json")


def _log_warning(words: str, **facts: str) -> None:
    import structlog  # 30 ms, for what seldom happens

    structlog.get_logger("jobs").warning(words, **facts)


class ForgivingStore(StatisticStore):
    """Statistic store for training with at most `max_bytes`, oldest evicted first; lost tables are counted again and
    stop nothing.
    """

    def __init__(self, directory: Path, max_bytes: int) -> None:
        super().__init__(directory)
        self.max_bytes = max_bytes

    def get(self, key: str) -> pa.Table | None:
        """Return the stored table; a damaged one is discarded and counts as missing."""
        try:
            return super().get(key)
        except CorruptFile as error:
            _log_warning("a stored statistic is damaged and will be counted again", key=key, reason=str(error))
            self.discard(key)
            return None

    def put(self, key: str, *values: Any, **named: Any) -> None:
        """Store the table if the disk permits; without it only a restart or a refresh is slower."""
        try:
            super().put(key, *values, **named)
            self.prune(self.max_bytes)
        except Unwritable as error:
            _log_warning("a statistic was not stored", key=key, reason=str(error))


class PassCheckpoint(CheckpointFile):
    """Checkpoint of one pass; a disk that refuses it only makes a restart slower."""

    def __init__(self, path: Path, every_s: float) -> None:
        super().__init__(path)
        self.every_s = every_s

    def save(self, table: pa.Table, note: Note) -> None:
        """Replace the saved checkpoint."""
        try:
            super().save(table, note)
        except Unwritable as error:
            _log_warning("a pass left no checkpoint", reason=str(error))


class JobCheckpoints:
    """Checkpoints of a job's passes, in its scratch folder; a pass is saved every `every_s` seconds."""

    def __init__(self, directory: Path, every_s: float) -> None:
        self.directory, self.every_s = directory, every_s

    def at(self, key: str) -> PassCheckpoint:
        """Return the checkpoint of the pass with this key."""
        return PassCheckpoint(self.directory / f"{key}.checkpoint", self.every_s)


class Ledger:
    """Statistics, schemas and rules of one data set.

    Rules and schemas are in `directory`, whether or not statistics are kept; the checkpoints are of the job that trains.
    """

    def __init__(
        self, directory: Path, store: ForgivingStore | None, checkpoints: JobCheckpoints | None = None
    ) -> None:
        self.directory, self.store, self.checkpoints = directory, store, checkpoints

    @property
    def forgotten(self) -> Forgotten:
        """Rules of rows that must not be learned from."""
        return Forgotten(self.rules_path)

    @property
    def rules_path(self) -> Path:
        """Path of the rules file, which may not exist."""
        return self.directory / RULES

    def schema(self, target: str | None, overrides: JSONMapping, cuts_by: Mapping[str, object]) -> Schema | None:
        """Return the schema of the last training with this target, these columns and the same cut point parameters
        (CorruptFile).

        None if it does not exist, or if rows that it was inferred from have been forgotten since.
        """
        path = self._schema_path(target, overrides, cuts_by)
        if not path.exists() or not self._knows_rules(path):
            return None
        try:
            text = path.read_text()
            document = parse_checked_json(path, text)
            return Schema.from_json(str(document["schema"]) if isinstance(document.get("schema"), str) else text)
        except CorruptFile as error:
            reason = "the schema of the last training has changed since it was written. Train once without update."
            raise CorruptFile(path, reason) from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = f"the schema of the last training cannot be read ({error}). Train once without update."
            raise CorruptFile(path, reason) from error

    def keep_schema(
        self, target: str | None, overrides: JSONMapping, cuts_by: Mapping[str, object], schema: Schema
    ) -> None:
        """Store the schema for the next update."""
        path = self._schema_path(target, overrides, cuts_by)
        text = json_with_checksum({"schema": schema.to_json(), "rules": self._rules()})
        if self.store is not None and (not path.exists() or path.read_bytes() != text.encode()):
            with write_file_atomically(path, replace=True) as draft:
                draft.write_text(text)

    def discard_schemas(self) -> None:
        """Remove schemas inferred before rows were forgotten: value lists and cut points may come from those rows
        alone.
        """
        for path in (self.directory / SCHEMAS).glob("*.json"):
            if not self._knows_rules(path):
                path.unlink(missing_ok=True)

    def _rules(self) -> list[str]:
        """SHA-256 of each rule that has excluded rows, or may have."""
        forgotten = self.forgotten
        found = {rule.where: forgotten.counts(rule.where) for rule in forgotten.rules()}
        return sorted(forgotten_rule_sha256(where) for where, n in found.items() if not n or any(n.values()))

    def _knows_rules(self, path: Path) -> bool:
        """Return whether a schema was inferred under all rules; a damaged schema is refused later, by its reader."""
        if not (rules := set(self._rules())):
            return True
        try:
            known: Any = parse_checked_json(path, path.read_bytes()).get("rules", [])
            return rules <= set(known)
        except (OSError, ValueError, TypeError):
            return True

    def _schema_path(self, target: str | None, overrides: JSONMapping, cuts_by: Mapping[str, object]) -> Path:
        key = json.dumps([target, overrides, *([cuts_by] if cuts_by else [])], sort_keys=True, default=str)
        name = hashlib.sha256(key.encode()).hexdigest()[:16]
        return self.directory / SCHEMAS / f"{name}.json"


def source_file_record(file: SourceFile) -> JSONObject:
    """Return the stored record of a file that was read."""
    facts = {"path": file.path, "size": file.size, "n_rows": file.n_rows, "footer_sha256": file.footer_sha256}
    facts |= {"stored_sha256": file.stored_sha256} if file.stored_sha256 else {}
    return facts | ({"content_sha256": file.content_sha256} if file.content_sha256 else {})


def remove_dataset_statistics(directory: Path) -> None:
    """Remove the statistics and notes of a deleted data set or model, which describe its files and not its name.

    The rules of forgotten rows stay: most data sets are deleted to be registered again, and those rows must not return.
    """
    for name in (STATISTICS, SCHEMAS):
        shutil.rmtree(directory / name, ignore_errors=True)
    for name in (CONTENTS, COLUMNS, SNAPSHOT):
        (directory / name).unlink(missing_ok=True)


def statistics_ledger(workspace: Workspace, request: TrainRequest, run: Run) -> Ledger:
    """Return the ledger beside a registered data set, so that models share passes; beside a model trained on files to
    be updated; else in a job's scratch folder, or nowhere.
    """
    settings = workspace.settings
    scratch = workspace.layout.scratch_directory(run.job_id)
    checkpoints = None if run.is_local else JobCheckpoints(scratch / "passes", settings.checkpoint_s)
    if request.dataset is not None:
        directory = workspace.layout.dataset_directory(request.dataset)
    else:
        directory = workspace.layout.model_directory(request.model) / DATA
    place: Path | None = directory
    if request.dataset is None and not request.update:
        place = None if run.is_local else scratch
    store = None if place is None else ForgivingStore(place / STATISTICS, settings.statistics_bytes)
    return Ledger(directory, store, checkpoints)


def verify_files(source: Source, ledger: Ledger, report: Report) -> None:
    """Read all bytes of all files and store their SHA-256, so that a rewritten file is recognised as a new one.

    Statistics that were counted of these files before anybody had read them whole are removed: the contents of the
    files at that time are unknown. Formats that are read completely on opening need no such check. `report` gets the
    progress after each block, and may raise. Raises SourceError if a file cannot be read, or changes meanwhile.
    """
    noted = _contents(ledger)
    n_total, n_done, digests = sum(file.size for file in source.files), 0, dict[str, str]()

    def read(n_bytes: int) -> None:
        nonlocal n_done
        n_done += n_bytes
        report({"stage": "verifying files", "bytes_done": n_done, "bytes_total": n_total})

    for index, file in enumerate(source.files):
        if file.content_sha256:
            digests[_plain_identity(file)] = source.content_sha256(index, read)
    if noted | digests != noted:
        _write(ledger.directory / CONTENTS, {"contents": noted | digests})
    if ledger.store is not None:
        for entry in ledger.store.entries():
            if any(split_file_identity(identity)[0] in digests for identity in entry.files):
                ledger.store.discard(entry.key)


def source_with_verified_hashes(source: Source, ledger: Ledger) -> Source:
    """Return the same rows with verified files identified by the SHA-256 of all their bytes."""
    noted = _contents(ledger)
    identities = {index: _plain_identity(file) for index, file in enumerate(source.files)} if noted else {}
    known = {index: noted[identity] for index, identity in identities.items() if identity in noted}
    return source.known_by(known) if known else source


def source_with_earlier_files(source: Source, ledger: Ledger) -> Source:
    """Return the same rows, with the files that have left a lake table since it was last counted."""
    if source.snapshot is None or ledger.store is None:
        return source
    try:
        note = _read(ledger.directory / SNAPSHOT)
    except CorruptFile:  # what it would save is counted again
        return source
    identities = note.get("files")
    if not isinstance(identities, dict):
        return source
    known = KnownSnapshot(str(note["format"]), str(note["folder"]), str(note["version"]), identities)
    whole = source.since(known)
    if whole.earlier is not None:
        whole.earlier = source_with_verified_hashes(whole.earlier, ledger)
    return whole


def save_lake_snapshot(source: Source, ledger: Ledger) -> None:
    """Store which snapshot of a lake table was counted, and the identities of its files."""
    snapshot = source.snapshot
    if snapshot is None or ledger.store is None:
        return
    files = {file.key: _plain_identity(own) for file, own in zip(snapshot.files, source.files, strict=True)}
    note = {"format": snapshot.kind, "folder": snapshot.folder, "version": snapshot.version, "files": files}
    _write(ledger.directory / SNAPSHOT, note)


def _plain_identity(file: SourceFile) -> str:
    return file_identity(replace(file, part=()))


def _contents(ledger: Ledger) -> dict[str, str]:
    """Return the stored identities; empty if the notes are damaged, since their files are then counted again."""
    try:
        contents = _read(ledger.directory / CONTENTS).get("contents", {})
    except CorruptFile:
        return {}
    return {str(name): str(digest) for name, digest in contents.items()} if isinstance(contents, dict) else {}


def save_column_order(workspace: Workspace, dataset: str, source: Source) -> None:
    """Store the column order of a registered data set, unless it is known: later files do not change it."""
    path = workspace.layout.dataset_directory(dataset) / COLUMNS
    if not path.exists():
        _write(path, {"columns": source.arrow_schema.names})


def load_column_order(workspace: Workspace, dataset: str) -> Sequence[str]:
    """Return the stored column order; empty without a note, CorruptFile if it is damaged."""
    names = _read(workspace.layout.dataset_directory(dataset) / COLUMNS).get("columns", [])
    return [str(name) for name in names] if isinstance(names, list) else []


def damaged_dataset_notes(workspace: Workspace) -> list[CorruptFile]:
    """Return an error for each damaged note, after reading each completely. Rules of forgotten rows are checked
    separately.
    """
    patterns = [f"{folder}/{name}" for folder in (f"models/*/{DATA}", "datasets/*") for name in _OF_DATA]
    return unreadable_files(sorted(path for pattern in patterns for path in workspace.layout.root.glob(pattern)), _read)


def unreadable_files(paths: Iterable[Path], read: Callable[[Path], object]) -> list[CorruptFile]:
    """Return the error of each file that `read` refuses as damaged."""
    damages = []
    for path in paths:
        try:
            read(path)
        except CorruptFile as error:
            damages.append(error)
    return damages


def _read(path: Path) -> dict[str, object]:
    try:
        return parse_checked_json(path, path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError) as error:
        raise CorruptFile(path, f"it cannot be read ({error}). Restore it from a backup.") from error


def _write(path: Path, document: Mapping[str, object]) -> None:
    with write_file_atomically(path, replace=True) as draft:
        draft.write_text(json_with_checksum(document))
