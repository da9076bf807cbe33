"""SkDB's choice of how many attributes and parents to use, by leave-one-out losses in one more pass."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from learners.arrays import Float32s, Floats, Integers, freeze
from learners.classifiers import selection_kernels as kernels
from learners.classifiers.context_tree import ContextTree
from learners.classifiers.mixing import best_concentration
from learners.classifiers.structure import Structure
from learners.errors import EmptyStatistic, StatisticMismatch
from learners.schema import Chunk, Schema

LOSSES = ("squared", "zero-one")
M = 1.0
"""The pseudo-count of m-estimates, and of every root (Martínez et al. 2016, section 4)."""

DENSE_ROWS = 1 << 16
DENSE_RATIO = 8


@dataclass(frozen=True)
class Selection:
    """What the selection pass found.

    Parameters
    ----------
    n_attributes : int
        How many of the first attributes of the order to use.
    k : int
        How many of the first parents of each to use.
    mean_loss : (k + 1, n + 1) float64
        Mean leave-one-out loss for each number of parents and each prefix of the order.
    """

    n_attributes: int
    k: int
    mean_loss: Floats


class PrefixLosses:
    """Sums of leave-one-out losses for every number of parents and every prefix of the attributes.

    Losses are summed in whole multiples of 2^-30, so that they add exactly.

    Parameters
    ----------
    schema : Schema
    structure : Structure
        Of kDB with the largest k.
    trees : sequence of ContextTree
        One per entry of `structure.order`, from all the rows that the pass will see.
    class_counts : (n_classes,) int64
    loss : "squared" or "zero-one"
        (1 - P(y | x))^2, or whether another class is more probable.
    mixes : bool
        Whether the estimates of a context are mixed with those of the context without its last parent, as those of hierarchical
        Dirichlet processes are. m-estimates are not; where contexts have a handful of rows they choose fewer parents.

    References
    ----------
    Martínez, Webb, Chen, Zaidi (2016), Scalable learning of Bayesian network classifiers, JMLR 17(44), section 4.
    """

    stage = "measuring prefixes"
    can_subtract = True

    def __init__(
        self,
        schema: Schema,
        structure: Structure,
        trees: Sequence[ContextTree],
        class_counts: Integers,
        loss: str = "squared",
        mixes: bool = True,
    ) -> None:
        self.schema, self.structure, self.trees = schema, structure, tuple(trees)
        self.class_counts, self.loss, self.mixes = class_counts, loss, mixes
        self._tables = loss_tables(schema, structure, self.trees, class_counts, mixes)
        self._start()

    def _start(self) -> None:
        self.n_rows = 0
        k = max((len(parents) for parents in self.structure.parents), default=0)
        self.losses = np.zeros((k + 1, len(self.structure.order) + 1), np.int64)

    @property
    def spec(self) -> dict[str, object]:
        """What is collected: the counts that it measures are part of it."""
        return {
            "statistic": "prefix losses",
            "loss": self.loss,
            "mixes": self.mixes,
            "order": list(self.structure.order),
            "parents": [list(parents) for parents in self.structure.parents],
            "counts": self._digest,
        }

    @cached_property
    def _digest(self) -> str:
        digest = hashlib.sha256(self.class_counts.tobytes())
        for tree in self.trees:
            for array in (tree.branch, tree.cell_starts, tree.cell_value, tree.cell_count):
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    @property
    def columns(self) -> list[str]:
        """Columns to read."""
        return self.schema.columns

    def empty(self) -> PrefixLosses:
        """No rows; the tables are shared."""
        fresh = object.__new__(PrefixLosses)
        fresh.__dict__.update(self.__dict__)
        fresh._start()
        return fresh

    def update(self, rows: Chunk) -> None:
        """Add the losses of a chunk, whose rows must be among those that the trees have counted."""
        assert rows.y is not None
        self.n_rows += rows.n_rows
        add = kernels.add_two_class_losses if self.class_counts.size == 2 else kernels.add_losses
        add(self._tables, rows.x, rows.y, self.loss == "zero-one", self.losses)

    def merge(self, other: PrefixLosses) -> None:
        """Add the losses of other rows."""
        self._combine(other, 1)

    def subtract(self, other: PrefixLosses) -> None:
        """Take away the losses of rows that were added before."""
        self._combine(other, -1)

    def _combine(self, other: PrefixLosses, sign: int) -> None:
        if other.losses.shape != self.losses.shape or (other.loss, other.mixes, other.structure) != (
            self.loss,
            self.mixes,
            self.structure,
        ):
            raise StatisticMismatch("Losses of different structures cannot be combined.")
        self.n_rows += sign * other.n_rows
        self.losses += sign * other.losses

    def to_arrow(self) -> pa.Table:
        """One row per number of parents: the sums over the prefixes; the number of rows beside."""
        losses = pa.array(self.losses.tolist(), pa.list_(pa.int64()))
        return pa.table({"losses": losses, "n_rows": np.full(self.losses.shape[0], self.n_rows)})

    def from_arrow(self, table: pa.Table) -> PrefixLosses:
        """Read what `to_arrow` wrote."""
        read = self.empty()
        read.losses = np.array(table["losses"].to_pylist(), np.int64)
        read.n_rows = int(table["n_rows"][0].as_py())
        return read

    def best(self) -> Selection:
        """The prefix and the number of parents of least loss; of equally good ones fewer attributes, then fewer parents.

        Raises
        ------
        EmptyStatistic
            If no rows were measured.
        """
        if not self.n_rows:
            raise EmptyStatistic("No rows were measured, so no prefix can be chosen.")
        flat = self.losses.T.ravel()  # prefix by prefix: the first of the least is the smallest model
        n_attributes, k = divmod(int(flat.argmin()), self.losses.shape[0])
        return Selection(n_attributes, k, self.losses / (self.n_rows * float(kernels.ONE)))

    def __eq__(self, other: object) -> bool:
        """Whether the same losses were measured."""
        if not isinstance(other, PrefixLosses):
            return NotImplemented
        return self.n_rows == other.n_rows and self.spec == other.spec and np.array_equal(self.losses, other.losses)


@dataclass(frozen=True)
class _Level:
    """One attribute with its first parents: a row per (codes of the parents, value) that occurred."""

    keys: Integers  # (r,) ascending
    n_keys: int  # all that there could be
    log_probability: Float32s  # (r, C) from all rows
    log_left_out: Float32s  # (r, C) of the class of a row that is left out; 0 where there is none


_NOTHING = _Level(np.empty(0, np.int64), 0, np.empty((0, 0), np.float32), np.empty((0, 0), np.float32))


def _levels(tree: ContextTree, sizes: Sequence[int], n_classes: int, mixes: bool) -> Iterator[_Level]:
    """Estimates of every level below the root, with and without a row.

    Parameters
    ----------
    tree : ContextTree
    sizes : sequence of int
        Domain sizes of the parents.
    n_classes : int
    mixes : bool
        Whether each level mixes its frequencies with the estimate of the level above, by the concentration that predicts the rows
        best when each is left out. If not: m-estimates, as Martínez et al. have them.
    """
    n_values = tree.n_values
    node_of_cell = tree.node_of_cell()
    totals = tree.node_counts()
    n, total = tree.cell_count.astype(np.float64), totals[node_of_cell].astype(np.float64)
    # Whatever the class, the row that is left out is missing from the root.
    left_out = (n - 1 + M / n_values) / np.maximum(total - 1 + M, M)
    probability = left_out.copy()
    root = slice(0, int(tree.cell_starts[1]))
    keys = tree.cell_value[root]
    from_above = np.repeat(left_out[root][:, np.newaxis], n_classes, axis=1)
    number, label = np.zeros(tree.n_nodes, np.int64), np.zeros(tree.n_nodes, np.int64)
    n_contexts = 1
    for level in range(1, tree.level_starts.size - 1):
        nodes = slice(int(tree.level_starts[level]), int(tree.level_starts[level + 1]))
        cells = slice(int(tree.cell_starts[nodes.start]), int(tree.cell_starts[nodes.stop]))
        above, size = tree.parent[nodes], 1 if level == 1 else sizes[level - 2]
        label[nodes] = tree.branch[nodes] if level == 1 else label[above]
        number[nodes] = 0 if level == 1 else number[above] * size + tree.branch[nodes]
        n_contexts *= size
        node, cell_above = node_of_cell[cells], tree.cell_parent[cells]
        weight = best_concentration(n[cells], total[cells], left_out[cell_above]) if mixes else M
        share = probability[cell_above] if mixes else 1.0 / n_values
        share_left_out = left_out[cell_above] if mixes else 1.0 / n_values
        probability[cells] = (n[cells] + weight * share) / (total[cells] + weight)
        without = (n[cells] - 1 + weight * share_left_out) / (total[cells] - 1 + weight)
        # Without its row a context may be empty; then the last parent is dropped, which is the value of the level above.
        left_out[cells] = np.where(total[cells] == 1, left_out[cell_above], without)
        own_keys, row = np.unique(number[node] * n_values + tree.cell_value[cells], return_inverse=True)
        contexts, values = np.divmod(own_keys, n_values)
        own = from_above[np.searchsorted(keys, contexts // size * n_values + values)]
        # Classes that have been in the context, but not with this value.
        seen, where = np.unique(number[nodes], return_inverse=True)
        rest = np.full((seen.size, n_classes), np.nan)
        rest[where, label[nodes]] = weight / (totals[nodes] + weight)
        of_context = rest[np.searchsorted(seen, contexts)]
        own = np.where(np.isnan(of_context), own, of_context * (own if mixes else 1.0 / n_values))
        own[row, label[node]] = probability[cells]
        own_left_out = np.ones((own_keys.size, n_classes))
        own_left_out[row, label[node]] = left_out[cells]
        # Of all levels of all trees at once there are only these.
        logs = (np.log(own).astype(np.float32), np.log(own_left_out).astype(np.float32))
        yield _Level(own_keys, n_contexts * n_values, *logs)
        keys, from_above = own_keys, own


def loss_tables(
    schema: Schema, structure: Structure, trees: Sequence[ContextTree], class_counts: Integers, mixes: bool
) -> kernels.LossTables:
    """The arrays that the kernels read."""
    n_classes = class_counts.size
    sizes = schema.domain_sizes
    levels = [
        list(_levels(tree, [int(sizes[p]) for p in parents], n_classes, mixes))
        for tree, parents in zip(trees, structure.parents, strict=True)
    ]
    entries = [level for of_attribute in levels for level in of_attribute]
    is_dense = [level.n_keys <= max(DENSE_ROWS, DENSE_RATIO * level.keys.size) for level in entries]
    n_rows = [level.n_keys if dense else level.keys.size for level, dense in zip(entries, is_dense, strict=True)]
    row_starts = np.concatenate([[0], np.cumsum(n_rows)]).astype(np.int64)
    log_probability = np.zeros((int(row_starts[-1]), n_classes), np.float32)
    left_out = np.zeros_like(log_probability)
    hash_keys, hash_rows, shifts = [], [], []
    n_levels = [len(of_attribute) for of_attribute in levels]
    del levels
    for place, (dense, start) in enumerate(zip(is_dense, row_starts[:-1], strict=True)):
        level, entries[place] = entries[place], _NOTHING  # which is in memory once
        rows = start + (level.keys if dense else np.arange(level.keys.size))
        log_probability[rows], left_out[rows] = level.log_probability, level.log_left_out
        bits = 0 if dense else max(1, int(2 * level.keys.size - 1).bit_length())
        keys = np.full(1 << bits if bits else 0, kernels.EMPTY, np.int64)
        found = np.zeros(keys.size, np.int64)
        if bits:
            kernels.fill_hash(level.keys, start, 64 - bits, keys, found)
        hash_keys.append(keys)
        hash_rows.append(found)
        shifts.append(64 - bits)
    if n_classes == 2:
        log_probability = np.ascontiguousarray(log_probability[:, ::-1] - left_out)
    n, share = class_counts.astype(np.float64), M / n_classes
    tables = kernels.LossTables(
        attribute=np.array(structure.order, np.int64),
        n_values=np.array([tree.n_values for tree in trees], np.int64),
        parent_starts=_starts([len(parents) for parents in structure.parents]),
        level_starts=_starts(n_levels),
        parents=np.array([p for parents in structure.parents for p in parents], np.int64),
        parent_sizes=np.array([int(sizes[p]) for parents in structure.parents for p in parents], np.int64),
        is_dense=np.array(is_dense, np.uint8),
        row_starts=row_starts[:-1],
        hash_starts=_starts([keys.size for keys in hash_keys]),
        hash_shifts=np.array(shifts, np.int64),
        hash_keys=np.concatenate([*hash_keys, np.empty(0, np.int64)]),
        hash_rows=np.concatenate([*hash_rows, np.empty(0, np.int64)]),
        log_probability=log_probability,
        left_out=left_out,
        log_prior=np.log((n + share) / (n.sum() - 1 + M)).astype(np.float32),
        log_prior_left_out=np.log((np.maximum(n - 1, 0) + share) / (n.sum() - 1 + M)).astype(np.float32),
    )
    freeze(*tables)
    return tables


def _starts(sizes: Sequence[int]) -> Integers:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
