"""Which stored statistics make up the one that is wanted, and which files are left to read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from learners.passes.sources.row_filter import Selection
from learners.passes.sources.source import Source, file_identity

Files = frozenset[str]


class Entry(Protocol):
    """A stored statistic: what it is, and of which files."""

    @property
    def key(self) -> str:
        """Under which its table is stored."""

    @property
    def spec(self) -> Mapping[str, object]:
        """The statistic's specification."""

    @property
    def schema(self) -> str | None:
        """Its schema as JSON; None for a statistic of raw columns."""

    @property
    def files(self) -> Files:
        """Identities of the files whose rows it holds."""


class Store(Protocol):
    """Where statistics are kept, so that a run resumes, models share passes, and a refresh reads new files only."""

    def get(self, key: str) -> pa.Table | None:
        """The table stored under a key."""

    def put(
        self, key: str, table: pa.Table, *, spec: Mapping[str, object], schema: str | None, files: Iterable[str]
    ) -> object:
        """Keep a table and what it is of."""

    def entries(self) -> Sequence[Entry]:
        """All that is kept."""


@dataclass(frozen=True)
class Held:
    """A table in memory and what it is of."""

    key: str
    spec: Mapping[str, object]
    schema: str | None
    files: Files
    table: pa.Table


class MemoryStore:
    """A store that lasts as long as its process."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}

    def get(self, key: str) -> pa.Table | None:
        """The table stored under a key."""
        return self._held[key].table if key in self._held else None

    def put(
        self, key: str, table: pa.Table, *, spec: Mapping[str, object], schema: str | None, files: Iterable[str]
    ) -> None:
        """Keep a table and what it is of."""
        self._held[key] = Held(key, spec, schema, frozenset(files), table)

    def entries(self) -> Sequence[Held]:
        """All that is kept."""
        return list(self._held.values())


def statistic_key(spec: Mapping[str, object], schema_fingerprint: str | None, files: Iterable[str]) -> str:
    """SHA-256 of (specification, schema, files): equal keys mean equal statistics."""
    identity = {"spec": spec, "schema": schema_fingerprint, "files": sorted(files)}
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


class Supply:
    """The files to learn from, and those that only serve to subtract their rows.

    `source`: the rows to learn from.
    `selection`: by which they were chosen; it knows the rows that were not.
    `wanted`, `gone`: identity of each file -> (source, position there, rows).
    """

    def __init__(self, source: Source, selection: Selection | None = None) -> None:
        self.source, self.selection = source, selection
        self.wanted = _placed(source)
        self.gone: dict[str, tuple[Source, int, int]] = {}

    @property
    def files(self) -> Files:
        """Identities of the files to learn from."""
        return frozenset(self.wanted)

    def expanded(self, files: Files) -> Files:
        """The files, with those of which only a part is wanted, or nothing, replaced by their parts."""
        expanded: list[str] = []
        for file in files if self.selection is None else self.selection.rewritten(files):
            divided = self.selection.divide(file) if file not in self.wanted and self.selection is not None else None
            if divided is None:
                expanded.append(file)
                continue
            kept, rest = divided
            expanded += kept
            if rest is not None:
                places = _placed(rest)
                self.gone |= places
                expanded += places
        return frozenset(expanded)

    def n_rows(self, files: Iterable[str]) -> int:
        """Rows that reading these files means."""
        return sum((self.wanted.get(file) or self.gone[file])[2] for file in files)

    def of(self, files: Files) -> list[tuple[Source, Files]]:
        """Sources of just these files, each with those that it is of."""
        chosen: dict[int, tuple[Source, dict[str, int]]] = {}
        for file in sorted(files):
            source, index, _ = self.wanted.get(file) or self.gone[file]
            chosen.setdefault(id(source), (source, {}))[1][file] = index
        return [(source.only(set(own.values())), frozenset(own)) for source, own in chosen.values()]


def _placed(source: Source) -> dict[str, tuple[Source, int, int]]:
    found = {fragment.file: source.files[fragment.file] for fragment in source.fragments}
    return {file_identity(file): (source, index, file.n_rows) for index, file in found.items()}


@dataclass(frozen=True)
class Plan:
    """How to come by a statistic: entries to add, a first of which rows are subtracted, and files to read."""

    base: Entry | None  # the first to add
    # `gone`, `gone_read`: what the base holds too much: entries and files to subtract from it.
    gone: tuple[Entry, ...]
    gone_read: Files
    adds: tuple[Entry, ...]  # more to add
    read: Files  # files that no entry holds

    @property
    def entries(self) -> list[Entry]:
        """All entries in use."""
        return [*([self.base] if self.base is not None else []), *self.gone, *self.adds]


def best_plan(supply: Supply, entries: Sequence[Entry], *, can_subtract: bool) -> Plan:
    """The plan that reads the fewest rows.

    `entries`: those that can be read as what is wanted.
    `can_subtract`: whether the statistic can.
    """
    files = supply.files
    covers = {id(entry): supply.expanded(entry.files) for entry in entries}
    best, least = Plan(None, (), frozenset(), (), files), supply.n_rows(files)
    for base in entries:
        cover = covers[id(base)]
        if not cover & files:
            continue
        excess = cover - files
        if excess and not can_subtract:
            continue
        gone, gone_read = _packed(excess, entries, covers)
        if not gone_read <= supply.gone.keys():
            continue
        adds, read = _packed(files - cover, entries, covers)
        n_rows = supply.n_rows(read) + supply.n_rows(gone_read)
        if n_rows < least or (n_rows == least and best.base is None and n_rows == 0):
            best, least = Plan(base, gone, gone_read, adds, read), n_rows
    return best


def _packed(files: Files, entries: Sequence[Entry], covers: Mapping[int, Files]) -> tuple[tuple[Entry, ...], Files]:
    """Entries that lie wholly within the files and do not overlap, largest first, and the files that they leave."""
    chosen = []
    left = files
    for entry in sorted(entries, key=lambda entry: (-len(covers[id(entry)]), entry.key)) if files else ():
        cover = covers[id(entry)]
        if cover and cover <= left:
            chosen.append(entry)
            left -= cover
    return tuple(chosen), left
