"""What a workspace notes of data files beside statistics: their content where it was verified, and the order of their columns."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from learners.passes.sources.files import whole_and_part
from learners.passes.sources.lake.lake_tables import KnownSnapshot
from learners.passes.sources.source import Source, SourceFile, file_identity
from service.product.datasets.dataset_statistics import COLUMNS, CONTENTS, DATA, SCHEMAS, SNAPSHOT, STATISTICS, Ledger
from service.product.progress import Report
from service.workspace import Workspace
from storage.errors import CorruptFile
from storage.files.checksums import checked_document, with_sum
from storage.files.workspace_layout import publish

_OF_DATA = (COLUMNS, CONTENTS, SNAPSHOT, f"{SCHEMAS}/*.json", f"{STATISTICS}/*.json")


def verify_files(source: Source, ledger: Ledger, report: Report) -> None:
    """Read all bytes of all files and note their SHA-256, so that from now on a rewritten file is another one.

    Statistics that were counted of these files before anybody had read them whole are removed: nobody knows what the files
    held then. Formats whose every opening reads all bytes need none of this. `report` gets the progress after each block,
    and may raise. Raises SourceError if a file cannot be read, or changes meanwhile.
    """
    noted = _contents(ledger)
    n_total, n_done, found = sum(file.size for file in source.files), 0, dict[str, str]()

    def read(n_bytes: int) -> None:
        nonlocal n_done
        n_done += n_bytes
        report({"stage": "verifying files", "bytes_done": n_done, "bytes_total": n_total})

    for index, file in enumerate(source.files):
        if file.content_sha256:
            found[_plain_identity(file)] = source.content_sha256(index, read)
    if noted | found != noted:
        _write(ledger.directory / CONTENTS, {"contents": noted | found})
    if ledger.store is not None:
        for entry in ledger.store.entries():
            if any(whole_and_part(identity)[0] in found for identity in entry.files):
                ledger.store.discard(entry.key)


def as_verified(source: Source, ledger: Ledger) -> Source:
    """The same rows; a file that was verified is known by the SHA-256 of all its bytes."""
    noted = _contents(ledger)
    identities = {index: _plain_identity(file) for index, file in enumerate(source.files)} if noted else {}
    known = {index: noted[identity] for index, identity in identities.items() if identity in noted}
    return source.known_by(known) if known else source


def with_earlier(source: Source, ledger: Ledger) -> Source:
    """The same rows; beside those of a lake table, the files that have left it since it was last counted."""
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
    found = source.since(known)
    if found.earlier is not None:
        found.earlier = as_verified(found.earlier, ledger)
    return found


def keep_snapshot(source: Source, ledger: Ledger) -> None:
    """Note which snapshot of a lake table was counted, and by what its files are known."""
    snapshot = source.snapshot
    if snapshot is None or ledger.store is None:
        return
    files = {file.key: _plain_identity(own) for file, own in zip(snapshot.files, source.files, strict=True)}
    note = {"format": snapshot.kind, "folder": snapshot.folder, "version": snapshot.version, "files": files}
    _write(ledger.directory / SNAPSHOT, note)


def _plain_identity(file: SourceFile) -> str:
    return file_identity(replace(file, part=()))


def _contents(ledger: Ledger) -> dict[str, str]:
    """What is noted; nothing if the notes are damaged, as what they identify is then counted again."""
    try:
        contents = _read(ledger.directory / CONTENTS).get("contents", {})
    except CorruptFile:
        return {}
    return {str(name): str(digest) for name, digest in contents.items()} if isinstance(contents, dict) else {}


def keep_column_order(workspace: Workspace, dataset: str, source: Source) -> None:
    """Note the order of the columns of a registered data set, unless it is known: files that come later do not change it."""
    path = workspace.layout.dataset_directory(dataset) / COLUMNS
    if not path.exists():
        _write(path, {"columns": source.arrow_schema.names})


def column_order(workspace: Workspace, dataset: str) -> Sequence[str]:
    """The order that is noted, none if there is no note; CorruptFile if it is damaged."""
    names = _read(workspace.layout.dataset_directory(dataset) / COLUMNS).get("columns", [])
    return [str(name) for name in names] if isinstance(names, list) else []


def damaged_notes(workspace: Workspace) -> list[CorruptFile]:
    """The notes that are not what was written; each is read whole. Rules of forgotten rows have a check of their own."""
    root, found = workspace.layout.root, []
    patterns = [f"{folder}/{name}" for folder in (f"models/*/{DATA}", "datasets/*") for name in _OF_DATA]
    for path in sorted(path for pattern in patterns for path in root.glob(pattern)):
        try:
            _read(path)
        except CorruptFile as error:
            found.append(error)
    return found


def _read(path: Path) -> dict[str, object]:
    try:
        return checked_document(path, path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError) as error:
        raise CorruptFile(path, f"it cannot be read ({error}). Restore it from a backup.") from error


def _write(path: Path, document: Mapping[str, object]) -> None:
    with publish(path, replace=True) as draft:
        draft.write_text(with_sum(document))
