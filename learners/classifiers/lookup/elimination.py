"""Exact inference in a network for rows with missing attributes, by variable elimination."""

from __future__ import annotations

import math
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from learners.classifiers.lookup.kernels import FEW_ROWS, LookupTables, list_sums
from learners.classifiers.lookup.look_up_tables import (
    Tables,
    family_lookup_tables,
    fill_class_log_joints,
    lookup_tables_without_prior,
    slice_lookup_tables,
)
from learners.classifiers.structure import Structure
from learners.kernels.arrays import Array, Codes, Floats, Integers, Mask, freeze_arrays, read_only_array, take_rows

MOST_COMBINATIONS = 1 << 20
"""Maximum number of combinations of missing parents' values, times classes, that are summed out exactly, as in SQL."""

MOST_CELLS = 1 << 15
"""Numbers that one sum of one row may run over where there are more, all classes together."""

MAJOR, LARGE = 0.5, 0.25
"""Shares of another model in an answer, above which a sum reads fewer entries (docs/explanation/ensembles.md)."""

MOST_ENTRIES, MOST_OF_LARGE = 1 << 14, 1 << 20
"""The most table entries, of all classes together, that a sum reads for such a row (`log_joint`)."""

MOST_LISTED, MOST_LISTED_OF_FEW = 1 << 12, 1 << 14
"""Combinations of the missing values of one sum, times classes, up to which they are listed in a kernel, row by row: of many rows,
which would share a sum, and of `FEW_ROWS`."""

MOST_KEPT = 4096
"""Plans that are kept, of rows that each lack something else."""

BLOCK_CELLS = 1 << 20
"""Cells of the rows that are summed at a time. With more, more rows share a look-up; four times as many take 125 MB instead of 52."""


class Factor(NamedTuple):
    """A function of the missing attributes in a scope and of the class, for each kind of row."""

    scope: tuple[int, ...]  # ascending
    value: Floats  # (n_classes, one axis for each attribute of the scope, n_kinds) float64
    variance: Floats | None  # of the logarithm of each value
    # (n_rows,) int64: rows that agree in the known attributes on which the function depends are of one kind.
    kind: Integers


class Listed(NamedTuple):
    """Sums of few combinations: the families of each, one after another, and the missing attributes; the first sums over none."""

    n_families: Integers  # (n_sums,) int64
    families: Integers
    n_missing: Integers  # (n_sums,) int64
    missing: Integers
    n_most: int  # combinations of the widest


Lack = tuple[int, tuple[int, ...], frozenset[int]]
"""A family, the missing attributes over which it is summed, and all that it lacks."""


@dataclass(frozen=True)
class _Plan:
    """Elimination plan for rows with the same missing attributes."""

    scopes: dict[int, tuple[int, ...]]  # the missing attributes of each family that matters
    complete: tuple[tuple[int, int], ...]  # stretches first..last-1 of families of which nothing is missing
    around: list[int]  # the known attributes in families of which something is missing
    order: tuple[int, ...]  # in which the missing attributes are summed out
    n_cells: int  # numbers of each class in the widest sum
    n_entries: int  # of the families of which something is missing, for each class
    # Sums that have no missing attribute in common, each by what its families lack: rows that lack something else as well share them.
    parts: dict[tuple[Lack, ...], _Plan]
    listed: Listed | None = None  # where all parts are small, and no context ends


Sums = tuple[Integers, Integers, Integers, Integers]


class _FewSums(NamedTuple):
    """The sums of a few rows: see `list_sums`."""

    counts: Integers
    sums: Sums
    n_most: int
    n_entries: int  # the most of a plan, for each class


class Elimination:
    """Variable elimination in a compiled network.

    A code that is not below its domain size in `sizes` (n_attributes,) int64 is missing. `spread` has the
    variances in place of the log probabilities.

    References
    ----------
    Zhang, Poole (1996), Exploiting causal independence in Bayesian network inference, section 3; Dechter (1999), Bucket elimination.
    """

    def __init__(self, tables: Tables, structure: Structure, sizes: Integers, spread: Tables | None = None) -> None:
        self.tables, self.structure, self.sizes, self.spread = tables, structure, sizes, spread
        self._plans: dict[frozenset[int], _Plan] = {}
        self._few: dict[bytes, _FewSums | None] = {}
        self._families: dict[tuple[int, bool], Tables] = {}

    def log_joint(self, x: Codes, of_others: Floats | None = None) -> tuple[Floats, Floats]:
        """Return log P(class, known values) of rows (n_attributes, n_rows), (n_rows, n_classes) float64, and its
        variance.

        The variance is to first order, treating the tables' entries as independent; zero without `spread`. If the
        missing parents have more than `MOST_COMBINATIONS` and a sum would exceed `MOST_CELLS` numbers, the contexts
        of as few attributes as necessary end at their first missing parent instead. If the answer is part of another
        model's, whose share in each row is `of_others` (n_rows,), all contexts end in rows where the share is above
        `MAJOR` and the sum may read more than `MOST_ENTRIES`, or above `LARGE` and more than `MOST_OF_LARGE`.
        """
        n_classes, n_rows = self.tables.log_prior.size, x.shape[1]
        logs, variance = np.empty((n_rows, n_classes)), np.zeros((n_rows, n_classes))
        few = self._few_sums(x) if n_rows <= FEW_ROWS and self.spread is None else None
        if few is not None and (of_others is None or few.n_entries * n_classes <= MOST_ENTRIES):
            self._list_sums(x, few.counts, few.sums, few.n_most, logs)
            return logs, variance
        plain, listed = list[Integers](), list[tuple[Listed, Integers]]()
        eliminated = list[tuple[_Plan, Integers]]()
        for missing, rows in _patterns(x, self.sizes, self.structure.order):
            plan = self._plan(missing)
            if not plan.order:  # nothing to sum
                plain.append(rows)
                continue
            summed = rows
            if of_others is not None and plan.n_entries * n_classes > MOST_ENTRIES:
                ends = of_others[rows] > (LARGE if plan.n_entries * n_classes > MOST_OF_LARGE else MAJOR)
                if ends.any():
                    plain.append(rows[ends])
                    summed = rows[~ends]
                    if not summed.size:
                        continue
            if plan.listed is not None and plan.listed.n_most * n_classes <= MOST_LISTED and self.spread is None:
                listed.append((plan.listed, summed))
            else:
                eliminated.append((plan, summed))
        outs = [(tables, out) for tables, out in ((self.tables, logs), (self.spread, variance)) if tables is not None]
        if plain:
            rows = np.concatenate(plain)
            for tables, out in outs:
                if rows.size == n_rows:
                    fill_class_log_joints(tables, x, 0, n_rows, out)
                    continue
                log_joints = np.empty((rows.size, n_classes))
                fill_class_log_joints(tables, take_rows(x, rows), 0, rows.size, log_joints)
                out[rows] = log_joints
        if listed:
            rows = np.concatenate([rows for _, rows in listed])
            of_rows = np.empty((rows.size, n_classes))
            self._list_sums(take_rows(x, rows), *_side_by_side(listed), of_rows)
            logs[rows] = of_rows
        if eliminated:
            self._eliminate(x, eliminated, outs)
        return logs, variance

    def _eliminate(
        self, x: Codes, eliminated: Sequence[tuple[_Plan, Integers]], outs: Sequence[tuple[Tables, Floats]]
    ) -> None:
        """Compute the log joints of rows with these plans, and their variances; OUT (n_rows, n_classes) of each tables."""
        n_classes, parts = self.tables.log_prior.size, dict[tuple[Lack, ...], tuple[_Plan, list[Integers]]]()
        is_complete = np.zeros((len(self.structure.order), x.shape[1]), np.bool_)
        is_summed = np.zeros(x.shape[1], np.bool_)
        for plan, summed in eliminated:
            is_summed[summed] = True
            for first, last in plan.complete:
                is_complete[first:last, summed] = True
            for lacks, part in plan.parts.items():
                parts.setdefault(lacks, (part, []))[1].append(summed)
        rows = np.flatnonzero(is_summed)
        own = take_rows(x, rows)
        for tables, out in outs:
            out[rows] = self._complete_families(tables, own, is_complete[:, rows])
        for part, each in parts.values():
            rows = np.concatenate(each)
            own = take_rows(x, rows)
            first_rows, which = _different(own[part.around])
            step = max(1, BLOCK_CELLS // (part.n_cells * n_classes))
            blocks = [self._summed(own[:, first_rows[i : i + step]], part) for i in range(0, first_rows.size, step)]
            for place, (_, out) in enumerate(outs):
                out[rows] += np.concatenate([block[place] for block in blocks], axis=1).T[which]

    def _plan(self, missing: frozenset[int]) -> _Plan:
        plan = self._plans.get(missing)
        if plan is None:
            if len(self._plans) > MOST_KEPT:
                self._plans.clear()
            parents = missing & set[int]().union(*self.structure.parents)
            is_few = _size(parents, self.sizes) * self.tables.log_prior.size <= MOST_COMBINATIONS
            most = (MOST_COMBINATIONS if is_few else MOST_CELLS) // self.tables.log_prior.size
            plan = _planned(self.structure, missing, self.sizes, most)
            if isinstance(self.tables, LookupTables):
                plan = replace(
                    plan, listed=_listed(self.structure, missing, plan, self.sizes, self.tables.log_prior.size)
                )
            self._plans[missing] = plan
        return plan

    def _few_sums(self, x: Codes) -> _FewSums | None:
        """Return the sums of each of few rows, in their order, made once for what they lack; None where one is not listed, or nothing
        is summed.
        """
        is_missing: Mask = x >= self.sizes[:, np.newaxis]
        lacking = is_missing.tobytes()
        if lacking not in self._few:
            if len(self._few) > MOST_KEPT:
                self._few.clear()
            self._few[lacking] = None
            used = frozenset(self.structure.order)
            plans = [self._plan(used.intersection(np.flatnonzero(row).tolist())) for row in is_missing.T]
            listed = [(plan.listed, np.full(1, row)) for row, plan in enumerate(plans) if plan.listed is not None]
            if len(listed) == len(plans) and any(plan.order for plan in plans):
                n_entries = max(plan.n_entries for plan in plans if plan.order)
                self._few[lacking] = _FewSums(*_side_by_side(listed), n_entries)
        return self._few[lacking]

    def _list_sums(self, x: Codes, counts: Integers, sums: Sums, n_most: int, logs: Floats) -> None:
        """Compute the log joints of rows side by side whose sums are listed; OUT logs (n_rows, n_classes)."""
        codes = np.empty((x.shape[0], n_most), x.dtype)
        frozen = codes.view()
        frozen.setflags(write=False)
        list_sums(self.tables, x, self.sizes, counts, *sums, codes, frozen, logs)

    def _summed(self, x: Codes, plan: _Plan) -> tuple[Floats, Floats]:
        """Return the log joint and its variance, (n_classes, n_rows) each, over the families with missing members."""
        logs, variance = np.zeros((2, self.tables.log_prior.size, x.shape[1]))
        factors = []
        for i, scope in plan.scopes.items():
            if scope:
                known = sorted({self.structure.order[i], *self.structure.parents[i]} & set(plan.around))
                first, kind = _different(x[known])
                of_logs = self._logs(False, i, x[:, first], scope)
                of_variance = None if self.spread is None else self._logs(True, i, x[:, first], scope)
                largest = _largest(of_logs, -np.inf, 0.0)
                logs += largest[kind]
                factors.append(Factor(scope, np.exp(of_logs - largest), of_variance, kind))
        for attribute in plan.order:
            ours = [factor for factor in factors if attribute in factor.scope]
            factors = [factor for factor in factors if attribute not in factor.scope]
            factor = _summed_out(attribute, ours)
            largest = _largest(factor.value, 0.0, 1.0)
            logs += np.log(largest)[factor.kind]
            factors.append(factor._replace(value=factor.value / largest))
        with np.errstate(divide="ignore"):
            for factor in factors:
                logs += np.log(factor.value)[:, factor.kind]
                variance += 0.0 if factor.variance is None else factor.variance[:, factor.kind]
        return logs, variance

    def _complete_families(self, tables: Tables, x: Codes, is_complete: Mask) -> Floats:
        """(n_rows, n_classes): the prior's term and those of the families of each row, (n_families, n_rows), of which nothing is missing."""
        total = np.tile(tables.log_prior, (x.shape[1], 1))
        terms, is_all = lookup_tables_without_prior(tables), is_complete.all(axis=1)
        for first, last in _stretches(np.flatnonzero(is_all).tolist()):
            complete = np.empty_like(total)
            fill_class_log_joints(slice_lookup_tables(terms, first, last), x, 0, x.shape[1], complete)
            total += complete
        for i in np.flatnonzero(~is_all & is_complete.any(axis=1)).tolist():
            rows = np.flatnonzero(is_complete[i])
            members = [*self.structure.parents[i], self.structure.order[i]]
            complete = np.empty((rows.size, total.shape[1]))
            own = read_only_array(x[np.array(members)[:, np.newaxis], rows])
            fill_class_log_joints(self._family(i, tables is self.spread), own, 0, rows.size, complete)
            total[rows] += complete
        return total

    def _family(self, i: int, of_spread: bool) -> Tables:
        if (i, of_spread) not in self._families:
            tables = self.spread if of_spread and self.spread is not None else self.tables
            self._families[i, of_spread] = family_lookup_tables(tables, i, len(self.structure.parents[i]))
        return self._families[i, of_spread]

    def _logs(self, of_spread: bool, i: int, x: Codes, scope: tuple[int, ...]) -> Floats:
        """Return a family's entries at the rows' codes and all codes of the missing attributes, (n_classes, …, n_rows)."""
        tables, parents = self._family(i, of_spread), self.structure.parents[i]
        members = (*parents, self.structure.order[i])
        shape = tuple(int(self.sizes[v]) for v in scope)
        n_rows = x.shape[1]
        n_each = math.prod(shape)
        combinations = dict(zip(scope, np.indices(shape).reshape(len(scope), n_each), strict=True))
        codes = np.empty((len(members), n_each * n_rows), x.dtype)
        for place, v in enumerate(members):
            codes[place] = np.repeat(combinations[v], n_rows) if v in combinations else np.tile(x[v], n_each)
        freeze_arrays(codes)  # as the rows of a request: one compiled signature
        logs = np.empty((codes.shape[1], tables.log_prior.size))
        fill_class_log_joints(tables, codes, 0, codes.shape[1], logs)
        return np.ascontiguousarray(logs.T).reshape(-1, *shape, n_rows)


def _largest(values: Floats, none: float, instead: float) -> Floats:
    """Return the largest value of each kind of row, (n_kinds,), with `none` replaced."""
    largest = values.max(axis=tuple(range(values.ndim - 1)))
    return np.where(largest == none, instead, largest)


def _patterns(x: Codes, sizes: Integers, used: Sequence[int]) -> Iterator[tuple[frozenset[int], Integers]]:
    """Yield the missing attributes, among those in use, and the rows in which exactly these are missing."""
    if not x.shape[1]:
        return
    attributes = np.array(used, np.int64)
    is_missing: Mask = x[attributes] >= sizes[attributes, np.newaxis]
    if x.shape[1] == 1:
        yield frozenset(attributes[is_missing[:, 0]].tolist()), np.zeros(1, np.int64)
        return
    first, which = _different(np.packbits(is_missing, axis=0))
    order = np.argsort(which, kind="stable")
    ends = np.cumsum(np.bincount(which)).tolist()
    for place, begin, end in zip(first, [0, *ends], ends, strict=False):
        yield frozenset(attributes[is_missing[:, place]].tolist()), order[begin:end]


def _different(columns: Array) -> tuple[Integers, Integers]:
    """Return the first position of each distinct column, and the index of each column among them."""
    rows = np.ascontiguousarray(columns.T)
    n_bytes = rows.itemsize * rows.shape[1]
    if not n_bytes or len(rows) == 1:
        return np.arange(min(1, len(rows))), np.zeros(len(rows), np.int64)
    _, first, which = np.unique(rows.view(f"V{n_bytes}").ravel(), return_index=True, return_inverse=True)
    return first, which


def _planned(structure: Structure, missing: frozenset[int], sizes: Integers, most: int) -> _Plan:
    """Plan the elimination: skip missing attributes without known descendants, then eliminate the cheapest first.

    If a sum is too wide, the contexts of its widest families end early.
    """
    families = dict(enumerate(zip(structure.order, structure.parents, strict=True)))
    while True:
        needed = set(structure.order) - missing
        scopes = dict[int, frozenset[int]]()
        for i in reversed(families):  # children before their parents
            attribute, parents = families[i]
            if attribute in needed:
                needed.update(parents)
                scopes[i] = missing & {attribute, *parents}
        order, n_cells, widest = _order(scopes, sizes, most)
        if not widest:
            lacking = [{structure.order[i], *structure.parents[i]} for i, scope in scopes.items() if scope]
            around = sorted(set[int]().union(*lacking) - missing)
            complete = tuple(_stretches([i for i in sorted(scopes) if not scopes[i]]))
            lacks = [
                missing.intersection([i, *above]) for i, above in zip(structure.order, structure.parents, strict=True)
            ]
            n_entries = sum(_size(lack, sizes) for lack in lacks if lack)
            each = {i: tuple(sorted(scopes[i])) for i in sorted(scopes)}
            plan = _Plan(each, complete, around, order, n_cells, n_entries, {})
            plan.parts.update(_parts(structure, missing, plan))
            return plan
        ended = max(widest, key=lambda i: (_size(scopes[i], sizes), i))
        families[ended] = (families[ended][0], ())


def _parts(structure: Structure, missing: frozenset[int], plan: _Plan) -> Iterator[tuple[tuple[Lack, ...], _Plan]]:
    """The sums of a plan that have no missing attribute in common, and what their families lack."""
    groups = list[set[int]]()
    for scope in plan.scopes.values():
        if scope:
            joined = [group for group in groups if group & set(scope)]
            groups = [group for group in groups if not group & set(scope)] + [set(scope).union(*joined)]
    for group in groups:
        scopes = {i: scope for i, scope in plan.scopes.items() if group & set(scope)}
        members = {i: {structure.order[i], *structure.parents[i]} for i in scopes}
        around = sorted(set[int]().union(*members.values()) & set(plan.around))
        order = tuple(v for v in plan.order if v in group)
        lacks = tuple((i, scope, missing & members[i]) for i, scope in scopes.items())
        yield lacks, _Plan(scopes, (), around, order, plan.n_cells, plan.n_entries, {})


def _listed(
    structure: Structure, missing: frozenset[int], plan: _Plan, sizes: Integers, n_classes: int
) -> Listed | None:
    """The sums of a plan by their combinations; None where these are many, or where the context of a family ends."""
    for i, scope in plan.scopes.items():
        if missing.intersection([structure.order[i], *structure.parents[i]]) != set(scope):
            return None
    sums: list[tuple[list[int], tuple[int, ...]]] = [([i for i, scope in plan.scopes.items() if not scope], ())]
    sums += [(list(part.scopes), part.order) for part in plan.parts.values()]
    n_most = max(_size(frozenset(order), sizes) for _, order in sums)
    if n_most * n_classes > MOST_LISTED_OF_FEW:
        return None
    counts = (np.array([len(each) for each in column], np.int64) for column in zip(*sums, strict=True))
    values = (np.array([v for each in column for v in each], np.int64) for column in zip(*sums, strict=True))
    n_families, n_missing = counts
    families, attributes = values
    return Listed(n_families, families, n_missing, attributes, n_most)


def _side_by_side(listed: Sequence[tuple[Listed, Integers]]) -> tuple[Integers, Sums, int]:
    """Return the arguments of `list_sums` for rows side by side: counts, sums, and the combinations of the widest."""
    counts = np.array([(rows.size, of_rows.n_families.size) for of_rows, rows in listed])
    n_families, families, n_missing, missing = (
        np.concatenate(each) for each in zip(*(of_rows[:4] for of_rows, _ in listed), strict=True)
    )
    return counts, (n_families, families, n_missing, missing), max(of_rows.n_most for of_rows, _ in listed)


def _stretches(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield runs first..last-1 of consecutive numbers."""
    first = 0
    for i, place in enumerate(places):
        if i + 1 == len(places) or places[i + 1] > place + 1:
            yield places[first], place + 1
            first = i + 1


def _order(scopes: Mapping[int, frozenset[int]], sizes: Integers, most: int) -> tuple[tuple[int, ...], int, list[int]]:
    """Return the elimination order, cheapest first; the widest sum; and, if it is too wide, its families with missing
    parents.
    """
    factors = [(scope, {i}) for i, scope in scopes.items() if scope]
    left = set[int]().union(*(scope for scope, _ in factors))
    order, n_cells = list[int](), 1
    while left:
        around = {v: frozenset[int]().union(*(scope for scope, _ in factors if v in scope)) for v in left}
        cheapest = min(left, key=lambda v: (_size(around[v], sizes), v))
        within = set[int]().union(*(families for scope, families in factors if cheapest in scope))
        n_cells = max(n_cells, _size(around[cheapest], sizes))
        if n_cells > most and any(len(scopes[i]) > 1 for i in within):
            return (), n_cells, [i for i in within if len(scopes[i]) > 1]
        factors = [(scope, families) for scope, families in factors if cheapest not in scope]
        factors.append((around[cheapest] - {cheapest}, within))
        left.remove(cheapest)
        order.append(cheapest)
    return tuple(order), n_cells, []


def _size(scope: frozenset[int], sizes: Integers) -> int:
    return math.prod(int(sizes[v]) for v in scope)


def _summed_out(attribute: int, factors: Sequence[Factor]) -> Factor:
    """Multiply factors and sum out an attribute.

    To first order, the log of a sum of independent numbers has as variance the sum of its terms' variances, each
    weighted by its squared share.
    """
    scope = tuple(sorted(set[int]().union(*(factor.scope for factor in factors))))
    first, kind = _different(np.stack([factor.kind for factor in factors]))
    variance: Floats = np.zeros(1)
    values = list[Floats]()
    for factor in sorted(factors, key=lambda factor: factor.value.size):
        of_kind = factor.kind[first] if factor.value.shape[-1] > 1 else slice(None)
        values.append(_spread_over(factor.value[..., of_kind], factor.scope, scope))
        if factor.variance is not None:
            variance = variance + _spread_over(factor.variance[..., of_kind], factor.scope, scope)
    axis = 1 + scope.index(attribute)
    of_others = math.prod(values[:-1], start=np.ones(1))
    summed = None
    if factors[0].variance is None:
        total = _dot(of_others, values[-1], axis)
    else:
        value = of_others * values[-1]
        total = np.sum(value, axis=axis)
        share = value / np.expand_dims(np.where(total == 0.0, 1.0, total), axis)
        summed = np.sum(share**2 * variance, axis=axis)
    return Factor(tuple(v for v in scope if v != attribute), total, summed, kind)


def _dot(one: Floats, other: Floats, axis: int) -> Floats:
    """Sum the product of two arrays along an axis, without all products in memory."""
    shape = np.broadcast_shapes(one.shape, other.shape)
    letters = dict(zip((place for place, size in enumerate(shape) if size > 1), string.ascii_letters, strict=False))
    terms, arrays = list[str](), list[Floats]()
    for array in (one.reshape((1,) * (len(shape) - one.ndim) + one.shape), other):
        wide = [place for place, size in enumerate(array.shape) if size > 1]
        terms.append("".join(letters[place] for place in wide))
        arrays.append(array.reshape([array.shape[place] for place in wide]))
    left = "".join(letter for place, letter in letters.items() if place != axis)
    total = np.einsum(f"{','.join(terms)}->{left}", *arrays)
    return np.asarray(total.reshape(shape[:axis] + shape[axis + 1 :]))


def _spread_over(values: Floats, own: tuple[int, ...], scope: tuple[int, ...]) -> Floats:
    """Add an axis of length one for each attribute of the scope that the factor lacks."""
    axes = tuple(1 + place for place, v in enumerate(scope) if v not in own)
    return np.expand_dims(values, axes)
