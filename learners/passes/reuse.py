"""A statistic from what is stored and what must be read, bit for bit as if everything were read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from learners.passes.ledger import Entry, Files, Plan, Store, Supply, best_plan, statistic_key
from learners.passes.source import Source
from learners.passes.together import Together
from learners.schema import Schema
from learners.schema.extension import code_maps

Collect = Callable[[Any, Source, str], Any]


@dataclass(frozen=True)
class Account:
    """What a statistic took.

    Parameters
    ----------
    stage : str
        What was collected, in words.
    n_rows_read : int
        Rows read for it, those that were subtracted included; a pass that serves several statistics counts for each.
    n_rows_reused : int
        Rows of stored statistics that did not have to be read.
    n_files_read, n_files_reused : int
    """

    stage: str
    n_rows_read: int
    n_rows_reused: int
    n_files_read: int
    n_files_reused: int


@dataclass
class _Group:
    """Atoms of one statistic that share a plan."""

    leaf: Any
    part: Any  # empty, of these atoms
    plan: Plan
    base: Any = None  # by the schema of the base's entry
    whole: Any = None


@dataclass
class Recall:
    """Finds, reads and stores the statistics of one supply of rows.

    Parameters
    ----------
    supply : Supply
    store : Store or None
        Without one everything is collected.
    collect : callable
        `collect(empty statistic, source, key)` makes a pass; the key names what it collects, for checkpoints.
    later : callable
        `later(function, *arguments)` calls a function while the next pass runs; storing is slow and nobody waits for it.
    """

    supply: Supply
    store: Store | None
    collect: Collect
    later: Callable[..., Any]
    accounts: list[Account] = field(default_factory=list)

    def statistic(self, wanted: Any) -> Any:
        """What is wanted, of all rows of the supply."""
        leaves = wanted.leaves() if isinstance(wanted, Together) else [wanted]
        lost: set[str] = set()
        while True:
            groups = [group for leaf in leaves for group in self._groups(leaf, lost)]
            try:
                self._assemble(groups)
            except _Lost as loss:  # damaged or pruned: plan again without it
                lost.add(loss.key)
                continue
            whole = [_joined(leaf, [group for group in groups if group.leaf is leaf]) for leaf in leaves]
            break
        for leaf, statistic in zip(leaves, whole, strict=True):
            self._keep(statistic, self.supply.files)
            self._account(leaf, [group.plan for group in groups if group.leaf is leaf])
        return wanted.holding(whole) if isinstance(wanted, Together) else whole[0]

    def _groups(self, leaf: Any, lost: set[str]) -> list[_Group]:
        """The statistic's atoms by plan."""
        entries = [] if self.store is None else [entry for entry in self.store.entries() if entry.key not in lost]
        entries = [entry for entry in entries if _is_readable(leaf, entry)]
        can_subtract = getattr(leaf, "can_subtract", hasattr(leaf, "subtract"))
        if not hasattr(leaf, "only"):
            return [_Group(leaf, leaf.empty(), best_plan(self.supply, entries, can_subtract=can_subtract))]
        plans: dict[Any, tuple[Plan, list[Any]]] = {}
        for family in leaf.families:
            holding = [entry for entry in entries if leaf.can_derive(family, entry.spec)]
            plan = best_plan(self.supply, holding, can_subtract=can_subtract)
            keys = (tuple(entry.key for entry in plan.entries), plan.read, plan.gone_read)
            plans.setdefault(keys, (plan, []))[1].append(family)
        if not plans:
            return [_Group(leaf, leaf.empty(), best_plan(self.supply, entries, can_subtract=can_subtract))]
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
        scarce = [group for group in groups if not getattr(group.whole, "is_sufficient", True)]
        self._start_again(scarce)
        self._pass_over(scarce, lambda group: group.plan.read, subtracts=False)

    def _finish_bases(self, groups: list[_Group]) -> None:
        """Bring the bases under the wanted schema and add the other entries; what cannot be brought is read."""
        for group in groups:
            group.whole = group.part.empty()
            parts = [] if group.base is None else [group.base]
            parts += [self._read(group.part, entry) for entry in group.plan.adds]
            recoded = [_recoded(part, group.part.schema) for part in parts]
            if any(part is None for part in recoded):
                self._start_again([group])
                continue
            for part in recoded:
                group.whole.merge(part)

    def _start_again(self, groups: list[_Group]) -> None:
        for group in groups:
            group.plan = Plan(None, (), frozenset(), (), self.supply.files)
            group.base, group.whole = None, group.part.empty()

    def _pass_over(self, groups: list[_Group], files_of: Callable[[_Group], Files], *, subtracts: bool) -> None:
        """Read each set of files once for all groups that want it."""
        wanting: dict[tuple[str | None, Files], list[_Group]] = {}
        for group in groups:
            if files_of(group):
                schema = group.base.schema if subtracts else group.part.schema
                name = None if schema is None else schema.fingerprint
                wanting.setdefault((name, files_of(group)), []).append(group)
        for (name, files), together in wanting.items():
            empty = [group.base.empty() if subtracts else group.part.empty() for group in together]
            asked = reduce(Together, empty)
            whole = None
            for source, of_source in self.supply.of(files):
                part = self.collect(asked, source, statistic_key(asked.spec, name, of_source))
                if whole is None:
                    whole = part
                else:
                    whole.merge(part)
            assert whole is not None
            collected = whole.leaves() if isinstance(whole, Together) else [whole]
            for group, part in zip(together, collected, strict=True):
                if subtracts:
                    _subtract(group, part)
                else:
                    if files != self.supply.files:
                        self._keep(part, files)
                    group.whole.merge(part)

    def _read(self, part: Any, entry: Entry) -> Any:
        """An entry's statistic, by its own schema, of the atoms of `part`."""
        assert self.store is not None
        table = self.store.get(entry.key)
        if table is None:
            raise _Lost(entry.key)
        empty = part.empty()
        if entry.schema is not None and entry.schema != part.schema.to_json():
            empty = part.under(Schema.from_json(entry.schema))
        return empty.from_stored(table, entry.spec) if hasattr(empty, "from_stored") else empty.from_arrow(table)

    def _keep(self, statistic: Any, files: Files) -> None:
        if self.store is None:
            return
        schema = statistic.schema
        key = statistic_key(statistic.spec, None if schema is None else schema.fingerprint, files)
        if all(entry.key != key for entry in self.store.entries()):
            text = None if schema is None else schema.to_json()
            table, spec = statistic.to_arrow(), statistic.spec
            self.later(self.store.put, key, table, spec=spec, schema=text, files=sorted(files))

    def _account(self, leaf: Any, plans: Sequence[Plan]) -> None:
        """The dearest atom decides: all others need no more than it."""
        read = frozenset[str]().union(*(plan.read | plan.gone_read for plan in plans))
        reused = self.supply.files - read
        n_read = max(self.supply.n_rows(plan.read | plan.gone_read) for plan in plans)
        n_reused = self.supply.n_rows(reused)
        self.accounts.append(Account(leaf.stage, n_read, n_reused, len(read), len(reused)))


class _Lost(Exception):
    """A stored statistic that cannot be read any more."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _is_readable(leaf: Any, entry: Entry) -> bool:
    """Whether an entry holds (atoms of) the statistic, by a schema that determines its counts."""
    ours, theirs = dict(leaf.spec), dict(entry.spec)
    if hasattr(leaf, "only"):
        ours.pop("families"), theirs.pop("families", None)
    if ours != theirs and not (hasattr(leaf, "can_read") and leaf.can_read(entry.spec)):
        return False
    if (leaf.schema is None) != (entry.schema is None):
        return False
    if entry.schema is None or entry.schema == leaf.schema.to_json():
        return True
    return hasattr(leaf, "recoded") and code_maps(Schema.from_json(entry.schema), leaf.schema) is not None


def _recoded(statistic: Any, schema: Schema | None) -> Any:
    """The statistic by another schema, or None if its counts do not tell."""
    if schema is None or statistic.schema == schema:
        return statistic
    maps = code_maps(statistic.schema, schema)
    return None if maps is None else statistic.recoded(schema, maps)


def _subtract(group: _Group, part: Any) -> None:
    """Take a part out of the base, both by the base's schema."""
    recoded = _recoded(part, group.base.schema)
    if recoded is None:
        raise _Lost(group.plan.base.key if group.plan.base is not None else "")
    group.base.subtract(recoded)


def _joined(leaf: Any, groups: Sequence[_Group]) -> Any:
    return groups[0].whole if len(groups) == 1 else leaf.joined([group.whole for group in groups])
