"""Reuse stored statistics: choose those that make up a statistic and the files left to read, with the same result bit
for bit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial, reduce
from typing import Protocol, TypeVar

import pyarrow as pa

from learners.errors import InvalidCounts
from learners.passes.sources.row_filter import Selection
from learners.passes.sources.source import Source, file_identity
from learners.passes.statistic import (
    CodeStatistic,
    Divisible,
    Statistic,
    Together,
    replace_statistic_leaves,
    statistic_leaves,
)
from learners.schema import Schema
from learners.schema.schema_growth import partial_code_maps

S = TypeVar("S", bound=Statistic)

# Makes a pass: the statistic, which is empty at first, of all rows of a source; the key names the pass for checkpoints.
Collect = Callable[[Statistic, Source, str], Statistic]
Files = frozenset[str]


@dataclass(frozen=True)
class Account:
    """Cost of a statistic."""

    stage: str  # what was collected, in words
    # Rows read for it, those that were subtracted included; a pass that serves several statistics counts for each.
    n_rows_read: int
    n_rows_reused: int  # rows of stored statistics that did not have to be read
    n_files_read: int
    n_files_reused: int


@dataclass
class _Group:
    """Families of one statistic that share a plan, or an indivisible statistic."""

    leaf: Statistic
    part: Statistic  # empty, of these families
    plan: Plan
    base: Statistic | None = None  # by the schema of the base's entry
    whole: Statistic = field(init=False)


@dataclass
class Recall:
    """Finds, collects and stores the statistics of one supply of rows."""

    supply: Supply
    store: Store | None  # without one everything is collected
    collect: Collect
    # `later(function)` calls a function while the next pass runs; storing is slow and nobody waits for it.
    later: Callable[[Callable[[], object]], None]
    accounts: list[Account] = field(default_factory=list)

    def statistic(self, request: S) -> S:
        """Return the requested statistic over all rows of the supply."""
        leaves = statistic_leaves(request)
        lost: set[str] = set()
        while True:
            groups = [group for leaf in leaves for group in self._groups(leaf, lost)]
            try:
                self._assemble(groups)
            except _Lost as loss:  # damaged or pruned: plan again without it
                lost.add(str(loss))
                continue
            whole = [_joined(leaf, [group for group in groups if group.leaf is leaf]) for leaf in leaves]
            break
        for leaf, statistic in zip(leaves, whole, strict=True):
            self._keep(statistic, self.supply.files)
            self._account(leaf, [group.plan for group in groups if group.leaf is leaf])
        return replace_statistic_leaves(request, whole)

    def _groups(self, leaf: Statistic, lost: set[str]) -> list[_Group]:
        """Group the statistic's families by plan; one group if it is indivisible."""
        entries = [] if self.store is None else [entry for entry in self.store.entries() if entry.key not in lost]
        unknown = {entry.key: _unknown_attributes(leaf, entry) for entry in entries}
        by_key = {entry.key: entry for entry in entries if unknown[entry.key] is not None}

        @cache
        def plan_of(*keys: str) -> Plan:
            return best_reuse_plan(self.supply, [by_key[key] for key in keys], can_subtract=leaf.can_subtract)

        if not isinstance(leaf, Divisible) or not leaf.families:
            return [_Group(leaf, leaf.empty(), plan_of(*(key for key in by_key if not unknown[key])))]
        plans: dict[tuple[object, ...], tuple[Plan, list[object]]] = {}
        for family in leaf.families:
            derived = [key for key, entry in by_key.items() if leaf.can_derive(family, entry.spec)]
            plan = plan_of(*(key for key in derived if leaf.can_recode(family, unknown[key] or ())))
            keys = (tuple(entry.key for entry in plan.entries), plan.read, plan.gone_read)
            plans.setdefault(keys, (plan, []))[1].append(family)
        return [_Group(leaf, leaf.empty().only(families), plan) for plan, families in plans.values()]

    def _assemble(self, groups: list[_Group]) -> None:
        for group in groups:
            if group.plan.base is not None:
                group.base = self._read(group.part, group.plan.base)
        self._pass_over(groups, lambda group: group.plan.gone_read, subtracts=True)
        for group in groups:
            for entry in group.plan.gone:
                _subtract(group, self._read(group.part, entry))
        self._finish_bases(groups)
        self._pass_over(groups, lambda group: group.plan.read, subtracts=False)
        self._complete([group for group in groups if not group.whole.is_sufficient])

    def _complete(self, scarce: Sequence[_Group]) -> None:
        """Count again what subtraction has left unknown."""
        known = [group.whole for group in scarce]
        for group, whole in zip(scarce, known, strict=True):
            group.part = whole.remainder()
        self._start_again(scarce)
        self._pass_over(scarce, lambda group: group.plan.read, subtracts=False)
        for group, whole in zip(scarce, known, strict=True):
            group.whole = whole.completed(group.whole)

    def _finish_bases(self, groups: list[_Group]) -> None:
        """Recode the bases to the wanted schema and add the other entries; entries that cannot be recoded are read from
        the files.
        """
        for group in groups:
            group.whole = group.part.empty()
            parts = [] if group.base is None else [group.base]
            parts += [self._read(group.part, entry) for entry in group.plan.adds]
            recoded = [_recoded(part, group.part.schema) for part in parts]
            known = [part for part in recoded if part is not None]
            if len(known) < len(recoded):
                self._start_again([group])
                continue
            for part in known:
                group.whole.merge(part)

    def _start_again(self, groups: Sequence[_Group]) -> None:
        for group in groups:
            group.plan = Plan(None, (), frozenset(), (), self.supply.files)
            group.base, group.whole = None, group.part.empty()

    def _pass_over(self, groups: Sequence[_Group], files_of: Callable[[_Group], Files], *, subtracts: bool) -> None:
        """Read each set of files once for all groups that need it."""
        wanting: dict[tuple[str | None, Files], list[tuple[_Group, Statistic]]] = {}
        for group in groups:
            if files_of(group):
                like = group.base if subtracts else group.part
                assert like is not None, "only rows of the base can be subtracted"
                name = None if like.schema is None else like.schema.fingerprint
                wanting.setdefault((name, files_of(group)), []).append((group, like))
        for (name, files), together in wanting.items():
            collected = statistic_leaves(
                self._passed(reduce(Together, [like.empty() for _, like in together]), name, files)
            )
            for (group, _), part in zip(together, collected, strict=True):
                if subtracts:
                    _subtract(group, part)
                elif files == self.supply.files:  # all there is: adding it to nothing would take as much memory again
                    group.whole = part
                else:
                    self._keep(part, files)
                    group.whole.merge(part)

    def _passed(self, request: Statistic, schema: str | None, files: Files) -> Statistic:
        """Collect a statistic over some files, whatever their sources."""
        whole, *others = [
            self.collect(request, source, statistic_key(request.spec, schema, of_source))
            for source, of_source in self.supply.of(files)
        ]
        for part in others:
            whole.merge(part)
        return whole

    def _read(self, part: Statistic, entry: Entry) -> Statistic:
        """Load an entry's statistic for the families of `part`, with the entry's schema."""
        assert self.store is not None
        table = self.store.get(entry.key)
        if table is None:
            raise _Lost(entry.key)
        empty = part.empty()
        if isinstance(part, CodeStatistic) and entry.schema is not None and entry.schema != part.schema.to_json():
            empty = part.under(Schema.from_json(entry.schema))
        try:
            return empty.from_stored(table, entry.spec)
        except InvalidCounts:  # stored before counts were checked
            raise _Lost(entry.key) from None

    def _keep(self, statistic: Statistic, files: Files) -> None:
        if self.store is None:
            return
        schema, spec = statistic.schema, statistic.spec
        key = statistic_key(spec, None if schema is None else schema.fingerprint, files)
        if all(entry.key != key for entry in self.store.entries()):
            table, text = statistic.to_arrow(), None if schema is None else schema.to_json()
            self.later(partial(self.store.put, key, table, spec=spec, schema=text, files=sorted(files)))

    def _account(self, leaf: Statistic, plans: Sequence[Plan]) -> None:
        """Record the cost of a statistic, which is that of its most expensive family."""
        read = frozenset[str]().union(*(plan.read | plan.gone_read for plan in plans))
        reused = self.supply.files - read
        n_read = max(self.supply.n_rows(plan.read | plan.gone_read) for plan in plans)
        n_reused = self.supply.n_rows(reused)
        self.accounts.append(Account(leaf.stage, n_read, n_reused, len(read), len(reused)))


class _Lost(Exception):
    """A stored statistic that is unreadable or invalid; the message is its key."""


def _unknown_attributes(leaf: Statistic, entry: Entry) -> frozenset[int] | None:
    """Return the attributes whose codes an entry's schema does not determine; None if the entry does not contain
    (families of) the statistic.
    """
    if not leaf.can_read(entry.spec):
        return None
    if leaf.schema is None or entry.schema is None:
        return frozenset() if leaf.schema is entry.schema else None
    if entry.schema == leaf.schema.to_json():
        return frozenset()
    maps = partial_code_maps(Schema.from_json(entry.schema), leaf.schema) if isinstance(leaf, CodeStatistic) else None
    return None if maps is None else maps.unknown


def _recoded(statistic: Statistic, schema: Schema | None) -> Statistic | None:
    """Recode a statistic to another schema; None if its counts do not determine the result."""
    if schema is None or statistic.schema is None or statistic.schema == schema:
        return statistic
    maps = partial_code_maps(statistic.schema, schema)
    return statistic.recoded(schema, maps) if isinstance(statistic, CodeStatistic) and maps is not None else None


def _subtract(group: _Group, part: Statistic) -> None:
    """Subtract a part from the base, both in the base's schema."""
    assert group.base is not None, "only rows of the base can be subtracted"
    recoded = _recoded(part, group.base.schema)
    if recoded is None:
        raise _Lost(group.plan.base.key if group.plan.base is not None else "")
    group.base.subtract(recoded)


def _joined(leaf: Statistic, groups: Sequence[_Group]) -> Statistic:
    if not isinstance(leaf, Divisible):
        return groups[0].whole
    parts = [group.whole for group in groups if isinstance(group.whole, type(leaf))]
    return leaf.joined(parts) if len(parts) > 1 else parts[0]


class Entry(Protocol):
    """A stored statistic: its specification and files."""

    @property
    def key(self) -> str:
        """Key of its table."""

    @property
    def spec(self) -> Mapping[str, object]:
        """Specification of the statistic."""

    @property
    def schema(self) -> str | None:
        """Schema as JSON; None for a statistic of raw columns."""

    @property
    def files(self) -> Files:
        """Identities of the files with its rows."""


class Store(Protocol):
    """Storage of statistics, which lets runs resume, models share passes, and refreshes read only new files."""

    def get(self, key: str) -> pa.Table | None:
        """Return the table stored under a key, or None."""

    def put(
        self, key: str, table: pa.Table, *, spec: Mapping[str, object], schema: str | None, files: Iterable[str]
    ) -> object:
        """Store a table with its specification."""

    def entries(self) -> Sequence[Entry]:
        """Return all entries."""


def statistic_key(spec: Mapping[str, object], schema_fingerprint: str | None, files: Iterable[str]) -> str:
    """Return the SHA-256 of (specification, schema, files): equal keys mean equal statistics."""
    identity = {"spec": spec, "schema": schema_fingerprint, "files": sorted(files)}
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


class Supply:
    """Files to learn from, and files read only to subtract their rows.

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
        """Replace files of which only part of the rows, or none, are wanted by their parts."""
        expanded: list[str] = []
        for file in files if self.selection is None else self.selection.rewritten(files):
            divided = self.selection.divide(file) if file not in self.wanted and self.selection is not None else None
            if divided is None:
                expanded.append(file)
                continue
            wanted_parts, rest = divided
            expanded += wanted_parts
            if rest is not None:
                places = _placed(rest)
                self.gone |= places
                expanded += places
        return frozenset(expanded)

    def n_rows(self, files: Iterable[str]) -> int:
        """Return the number of rows to read in these files."""
        return sum((self.wanted.get(file) or self.gone[file])[2] for file in files)

    def of(self, files: Files) -> list[tuple[Source, Files]]:
        """Return sources of just these files, each with its files' identities."""
        chosen: dict[int, tuple[Source, dict[str, int]]] = {}
        for file in sorted(files):
            source, index, _ = self.wanted.get(file) or self.gone[file]
            chosen.setdefault(id(source), (source, {}))[1][file] = index
        return [(source.only(set(own.values())), frozenset(own)) for source, own in chosen.values()]


def _placed(source: Source) -> dict[str, tuple[Source, int, int]]:
    rows: dict[int, int] = {}
    for fragment in source.fragments:
        rows[fragment.file] = rows.get(fragment.file, 0) + fragment.n_rows
    return {file_identity(source.files[index]): (source, index, n_rows) for index, n_rows in rows.items()}


@dataclass(frozen=True)
class Plan:
    """Plan for a statistic: entries to add, entries to subtract, and files to read."""

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


def best_reuse_plan(supply: Supply, entries: Sequence[Entry], *, can_subtract: bool) -> Plan:
    """Return the plan that reads the fewest rows.

    `entries`: those that can be converted to the requested one.
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
    """Select disjoint entries that lie within the files, largest first; returns them and the remaining files."""
    chosen = []
    left = files
    for entry in sorted(entries, key=lambda entry: (-len(covers[id(entry)]), entry.key)) if files else ():
        cover = covers[id(entry)]
        if cover and cover <= left:
            chosen.append(entry)
            left -= cover
    return tuple(chosen), left
