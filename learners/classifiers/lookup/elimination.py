"""What a network says of a row with attributes missing: they are summed out, exactly, one after the other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from learners.classifiers.lookup.tables import Tables, log_joints, of_family
from learners.classifiers.structure import Structure
from learners.kernels.arrays import Array, Codes, Floats, Integers, Mask, freeze

MOST_CELLS = 1 << 20
"""Numbers that one sum of one row may run over, all classes together."""

BLOCK_CELLS = 1 << 18
"""Of the rows that are summed at a time, which a processor's cache holds."""


class Factor(NamedTuple):
    """A function of the missing attributes in a scope and of the class, for each row.

    Attributes
    ----------
    scope : tuple of int
        Ascending.
    value : (n_classes, one axis for each attribute of the scope, n_rows or 1) float64
    variance : like `value`, or None
        Of the logarithm of each value.
    """

    scope: tuple[int, ...]
    value: Floats
    variance: Floats | None


@dataclass(frozen=True)
class _Plan:
    """Which families matter where some attributes are missing, in which order to sum these out, and the widest sum."""

    families: tuple[int, ...]
    order: tuple[int, ...]
    n_cells: int


class Elimination:
    """Variable elimination in a compiled network.

    Parameters
    ----------
    tables : LookupTables or ManyClassTables
    structure : Structure
    sizes : (n_attributes,) int64
        Domains; a code that is not below its size is missing.
    spread : LookupTables, optional
        The variance of each log probability in its place.

    References
    ----------
    Zhang, Poole (1996), Exploiting causal independence in Bayesian network inference, section 3; Dechter (1999), Bucket elimination.
    """

    def __init__(self, tables: Tables, structure: Structure, sizes: Integers, spread: Tables | None = None) -> None:
        self.tables, self.structure, self.sizes, self.spread = tables, structure, sizes, spread
        self._plans: dict[frozenset[int], _Plan] = {}

    def log_joint(self, x: Codes) -> tuple[Floats, Floats]:
        """Log P(class, what is known) of rows, and the variance of it.

        Parameters
        ----------
        x : (n_attributes, n_rows) codes

        Returns
        -------
        (n_rows, n_classes) float64
        (n_rows, n_classes) float64
            To first order, the tables' entries taken for independent; zero without `spread`.

        Notes
        -----
        Where a sum would run over more than `MOST_CELLS` numbers, the context of an attribute ends at its first missing parent instead.
        """
        n_classes = self.tables.log_prior.size
        logs, variance = np.empty((x.shape[1], n_classes)), np.zeros((x.shape[1], n_classes))
        for missing, rows in _patterns(x, self.sizes, self.structure.order):
            plan = self._plan(missing)
            if not plan.order or plan.n_cells * n_classes > MOST_CELLS:  # nothing to sum, or too much
                own = _contiguous(x[:, rows])
                for tables, out in ((self.tables, logs), (self.spread, variance)):
                    if tables is not None:
                        found = np.empty((rows.size, n_classes))
                        log_joints(tables, own, 0, rows.size, found)
                        out[rows] = found
                continue
            known = np.array(sorted(set(self.structure.order) - missing), np.int64)
            first, which = _different(x[known[:, np.newaxis], rows])
            different = _contiguous(x[:, rows[first]])
            step = max(1, BLOCK_CELLS // (plan.n_cells * n_classes))
            blocks = [
                self._summed(_contiguous(different[:, start : start + step]), missing, plan)
                for start in range(0, first.size, step)
            ]
            for part, out in enumerate((logs, variance)):
                out[rows] = np.concatenate([block[part] for block in blocks], axis=1).T[which]
        return logs, variance

    def _plan(self, missing: frozenset[int]) -> _Plan:
        if missing not in self._plans:
            if len(self._plans) > 4096:  # of rows that each lack something else
                self._plans.clear()
            self._plans[missing] = _planned(self.structure, missing, self.sizes)
        return self._plans[missing]

    def _summed(self, x: Codes, missing: frozenset[int], plan: _Plan) -> tuple[Floats, Floats]:
        """(n_classes, n_rows) each."""
        n_rows = x.shape[1]
        logs = np.repeat(self.tables.log_prior[:, np.newaxis], n_rows, axis=1)
        variance = np.zeros_like(logs)
        if self.spread is not None:
            variance += self.spread.log_prior[:, np.newaxis]
        factors = []
        for i in plan.families:
            scope = tuple(sorted(missing & {self.structure.order[i], *self.structure.parents[i]}))
            of_logs = self._logs(self.tables, i, x, scope)
            of_variance = None if self.spread is None else self._logs(self.spread, i, x, scope)
            if scope:
                largest = _largest(of_logs, -np.inf, 0.0)
                logs += largest
                factors.append(Factor(scope, np.exp(of_logs - largest), of_variance))
            else:
                logs += of_logs
                variance += 0.0 if of_variance is None else of_variance
        for attribute in plan.order:
            ours = [factor for factor in factors if attribute in factor.scope]
            factors = [factor for factor in factors if attribute not in factor.scope]
            made = _summed_out(attribute, ours)
            largest = _largest(made.value, 0.0, 1.0)
            logs += np.log(largest)
            factors.append(made._replace(value=made.value / largest))
        with np.errstate(divide="ignore"):
            for factor in factors:
                logs += np.log(factor.value)
                variance += 0.0 if factor.variance is None else factor.variance
        return logs, variance

    def _logs(self, tables: Tables, i: int, x: Codes, scope: tuple[int, ...]) -> Floats:
        """The entries of a family at the codes of the rows and all codes of the missing attributes: (n_classes, …, n_rows or 1)."""
        parents = self.structure.parents[i]
        members = (*parents, self.structure.order[i])
        shape = tuple(int(self.sizes[v]) for v in scope)
        n_rows = x.shape[1] if len(scope) < len(members) else 1
        n_each = math.prod(shape)
        combinations = dict(zip(scope, np.indices(shape).reshape(len(scope), n_each), strict=True))
        codes = np.empty((len(members), n_each * n_rows), x.dtype)
        for place, v in enumerate(members):
            codes[place] = np.repeat(combinations[v], n_rows) if v in combinations else np.tile(x[v], n_each)
        freeze(codes)  # as the rows of a request: one compiled signature
        logs = np.empty((codes.shape[1], tables.log_prior.size))
        log_joints(of_family(tables, i, len(parents)), codes, 0, codes.shape[1], logs)
        return np.ascontiguousarray(logs.T).reshape(-1, *shape, n_rows)


def _largest(values: Floats, none: float, instead: float) -> Floats:
    """Of each row: (n_rows or 1,)."""
    found = values.max(axis=tuple(range(values.ndim - 1)))
    return np.where(found == none, instead, found)


def _contiguous(x: Codes) -> Codes:
    x = np.ascontiguousarray(x)
    freeze(x)
    return x


def _patterns(x: Codes, sizes: Integers, used: Sequence[int]) -> Iterator[tuple[frozenset[int], Integers]]:
    """The attributes that are missing, of those in use, and the rows in which just these are."""
    if not x.shape[1]:
        return
    attributes = np.array(used, np.int64)
    is_missing: Mask = x[attributes] >= sizes[attributes, np.newaxis]
    first, which = _different(np.packbits(is_missing, axis=0))
    order = np.argsort(which, kind="stable")
    pieces = np.split(order, np.cumsum(np.bincount(which))[:-1])
    for place, rows in zip(first, pieces, strict=True):
        yield frozenset(attributes[is_missing[:, place]].tolist()), rows


def _different(columns: Array) -> tuple[Integers, Integers]:
    """Where each different column stands first, and which of these each is."""
    rows = np.ascontiguousarray(columns.T)
    n_bytes = rows.itemsize * rows.shape[1]
    if not n_bytes:
        return np.arange(min(1, len(rows))), np.zeros(len(rows), np.int64)
    _, first, which = np.unique(rows.view(f"V{n_bytes}").ravel(), return_index=True, return_inverse=True)
    return first, which


def _planned(structure: Structure, missing: frozenset[int], sizes: Integers) -> _Plan:
    """Leave out missing attributes without descendants that are known, then sum out the cheapest first."""
    families = {
        i: {attribute, *parents}
        for i, (attribute, parents) in enumerate(zip(structure.order, structure.parents, strict=True))
    }
    needed = set(structure.order) - missing
    for i in reversed(range(len(structure.order))):  # children before their parents
        if structure.order[i] in needed:
            needed.update(structure.parents[i])
        else:
            del families[i]  # its probabilities sum to one
    scopes = [frozenset(scope & missing) for scope in families.values()]
    left = set[int]().union(*scopes)
    most = max((_size(scope, sizes) for scope in scopes), default=1)
    order = []
    while left:
        around = {v: frozenset[int]().union(*(scope for scope in scopes if v in scope)) for v in left}
        cheapest = min(left, key=lambda v: (_size(around[v], sizes), v))
        most = max(most, _size(around[cheapest], sizes))
        scopes = [scope for scope in scopes if cheapest not in scope] + [around[cheapest] - {cheapest}]
        left.remove(cheapest)
        order.append(cheapest)
    return _Plan(tuple(families), tuple(order), most)


def _size(scope: frozenset[int], sizes: Integers) -> int:
    return math.prod(int(sizes[v]) for v in scope)


def _summed_out(attribute: int, factors: Sequence[Factor]) -> Factor:
    """The product of factors, summed over the values of an attribute.

    Of a sum of independent numbers the variance of the logarithm is, to first order, the sum of those of its terms, each times its
    squared share.
    """
    scope = tuple(sorted(set[int]().union(*(factor.scope for factor in factors))))
    value: Floats = np.ones(1)
    variance: Floats = np.zeros(1)
    for factor in factors:
        value = value * _spread_over(factor.value, factor.scope, scope)
        if factor.variance is not None:
            variance = variance + _spread_over(factor.variance, factor.scope, scope)
    axis = 1 + scope.index(attribute)
    total = np.sum(value, axis=axis)
    summed = None
    if factors[0].variance is not None:
        share = value / np.expand_dims(np.where(total == 0.0, 1.0, total), axis)
        summed = np.sum(share**2 * variance, axis=axis)
    return Factor(tuple(v for v in scope if v != attribute), total, summed)


def _spread_over(values: Floats, own: tuple[int, ...], scope: tuple[int, ...]) -> Floats:
    """With an axis of length one for each attribute of the wider scope that is not the factor's own."""
    axes = tuple(1 + place for place, v in enumerate(scope) if v not in own)
    return np.expand_dims(values, axes)
