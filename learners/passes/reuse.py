"""A statistic from what is stored and what must be read, bit for bit as if everything were read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial, reduce
from typing import TypeVar

from learners.errors import InvalidCounts
from learners.passes.combined import Together, leaves_of, with_leaves
from learners.passes.sources.source import Source
from learners.passes.statistic import CodeStatistic, Divisible, Statistic
from learners.passes.stored_statistics import Entry, Files, Plan, Store, Supply, best_plan, statistic_key
from learners.schema import Schema
from learners.schema.schema_growth import code_maps

S = TypeVar("S", bound=Statistic)


# Makes a pass: the statistic, which is empty at first, of all rows of a source; the key names the pass for checkpoints.
Collect = Callable[[Statistic, Source, str], Statistic]


@dataclass(frozen=True)
class Account:
    """What a statistic took."""

    stage: str  # what was collected, in words
    # Rows read for it, those that were subtracted included; a pass that serves several statistics counts for each.
    n_rows_read: int
    n_rows_reused: int  # rows of stored statistics that did not have to be read
    n_files_read: int
    n_files_reused: int


@dataclass
class _Group:
    """Families of one statistic that share a plan, or a statistic that is not divisible."""

    leaf: Statistic
    part: Statistic  # empty, of these families
    plan: Plan
    base: Statistic | None = None  # by the schema of the base's entry
    whole: Statistic = field(init=False)


@dataclass
class Recall:
    """Finds, reads and stores the statistics of one supply of rows."""

    supply: Supply
    store: Store | None  # without one everything is collected
    collect: Collect
    # `later(function)` calls a function while the next pass runs; storing is slow and nobody waits for it.
    later: Callable[[Callable[[], object]], None]
    accounts: list[Account] = field(default_factory=list)

    def statistic(self, request: S) -> S:
        """What is wanted, of all rows of the supply."""
        leaves = leaves_of(request)
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
        return with_leaves(request, whole)

    def _groups(self, leaf: Statistic, lost: set[str]) -> list[_Group]:
        """The statistic's families by plan; one group if it is not divisible."""
        entries = [] if self.store is None else [entry for entry in self.store.entries() if entry.key not in lost]
        entries = [entry for entry in entries if _is_readable(leaf, entry)]
        by_key = {entry.key: entry for entry in entries}

        @cache
        def plan_of(*keys: str) -> Plan:
            return best_plan(self.supply, [by_key[key] for key in keys], can_subtract=leaf.can_subtract)

        if not isinstance(leaf, Divisible) or not leaf.families:
            return [_Group(leaf, leaf.empty(), plan_of(*by_key))]
        plans: dict[tuple[object, ...], tuple[Plan, list[object]]] = {}
        for family in leaf.families:
            plan = plan_of(*(entry.key for entry in entries if leaf.can_derive(family, entry.spec)))
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
        scarce = [group for group in groups if not group.whole.is_sufficient]
        self._start_again(scarce)
        self._pass_over(scarce, lambda group: group.plan.read, subtracts=False)

    def _finish_bases(self, groups: list[_Group]) -> None:
        """Bring the bases under the wanted schema and add the other entries; what cannot be brought is read."""
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

    def _start_again(self, groups: list[_Group]) -> None:
        for group in groups:
            group.plan = Plan(None, (), frozenset(), (), self.supply.files)
            group.base, group.whole = None, group.part.empty()

    def _pass_over(self, groups: list[_Group], files_of: Callable[[_Group], Files], *, subtracts: bool) -> None:
        """Read each set of files once for all groups that want it."""
        wanting: dict[tuple[str | None, Files], list[tuple[_Group, Statistic]]] = {}
        for group in groups:
            if files_of(group):
                like = group.base if subtracts else group.part
                assert like is not None, "only rows of a base are subtracted"
                name = None if like.schema is None else like.schema.fingerprint
                wanting.setdefault((name, files_of(group)), []).append((group, like))
        for (name, files), together in wanting.items():
            collected = leaves_of(self._passed(reduce(Together, [like.empty() for _, like in together]), name, files))
            for (group, _), part in zip(together, collected, strict=True):
                if subtracts:
                    _subtract(group, part)
                elif files == self.supply.files:  # all there is: adding it to nothing would take as much memory again
                    group.whole = part
                else:
                    self._keep(part, files)
                    group.whole.merge(part)

    def _passed(self, request: Statistic, schema: str | None, files: Files) -> Statistic:
        """What is asked of some files, whatever sources they are of."""
        whole, *others = [
            self.collect(request, source, statistic_key(request.spec, schema, of_source))
            for source, of_source in self.supply.of(files)
        ]
        for part in others:
            whole.merge(part)
        return whole

    def _read(self, part: Statistic, entry: Entry) -> Statistic:
        """An entry's statistic, by its own schema, of the families of `part`."""
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
            table, text = statistic.to_arrow(), _json_of(statistic)
            self.later(partial(self.store.put, key, table, spec=spec, schema=text, files=sorted(files)))

    def _account(self, leaf: Statistic, plans: Sequence[Plan]) -> None:
        """The dearest atom decides: all others need no more than it."""
        read = frozenset[str]().union(*(plan.read | plan.gone_read for plan in plans))
        reused = self.supply.files - read
        n_read = max(self.supply.n_rows(plan.read | plan.gone_read) for plan in plans)
        n_reused = self.supply.n_rows(reused)
        self.accounts.append(Account(leaf.stage, n_read, n_reused, len(read), len(reused)))


class _Lost(Exception):
    """A stored statistic that cannot be read any more, or is wrong."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _is_readable(leaf: Statistic, entry: Entry) -> bool:
    """Whether an entry holds (families of) the statistic, by a schema that determines its counts."""
    if not leaf.can_read(entry.spec):
        return False
    if leaf.schema is None or entry.schema is None:
        return leaf.schema is entry.schema
    if entry.schema == leaf.schema.to_json():
        return True
    return isinstance(leaf, CodeStatistic) and code_maps(Schema.from_json(entry.schema), leaf.schema) is not None


def _json_of(statistic: Statistic) -> str | None:
    return None if statistic.schema is None else statistic.schema.to_json()


def _recoded(statistic: Statistic, schema: Schema | None) -> Statistic | None:
    """The statistic by another schema, or None if its counts do not determine it."""
    if schema is None or statistic.schema is None or statistic.schema == schema:
        return statistic
    maps = code_maps(statistic.schema, schema)
    return statistic.recoded(schema, maps) if isinstance(statistic, CodeStatistic) and maps is not None else None


def _subtract(group: _Group, part: Statistic) -> None:
    """Take a part out of the base, both by the base's schema."""
    assert group.base is not None, "only rows of a base are subtracted"
    recoded = _recoded(part, group.base.schema)
    if recoded is None:
        raise _Lost(group.plan.base.key if group.plan.base is not None else "")
    group.base.subtract(recoded)


def _joined(leaf: Statistic, groups: Sequence[_Group]) -> Statistic:
    if not isinstance(leaf, Divisible):
        return groups[0].whole
    parts = [group.whole for group in groups if isinstance(group.whole, type(leaf))]
    return leaf.joined(parts) if len(parts) > 1 else parts[0]
