"""Compile estimates to lookup tables for many classes: contexts list only the classes observed in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from learners.classifiers.estimates.context_tree import ContextTree, Estimates
from learners.classifiers.lookup.kernels import ManyClassTables
from learners.classifiers.lookup.look_up_tables import smoothed_log_class_prior
from learners.classifiers.structure import Structure
from learners.kernels.arrays import Array, Codes, Float32s, Floats, Int32s, Integers, freeze_arrays, offsets_from_sizes
from learners.schema import Schema


class _Contexts(NamedTuple):
    """One attribute's contexts in a layout, numbered from zero."""

    child_starts: Integers
    child_ends: Integers
    branch: Int32s
    n_rests: Integers  # of each context
    rest_class: Codes
    node: Integers  # of the tree, whose rest each entry has
    n_pairs: Integers  # of each context
    pair_value: Int32s
    n_cells: Integers  # of each pair
    cell_class: Codes
    cell: Integers  # of the tree, whose probability each entry has


class Layout(NamedTuple):
    """Layout of the tables, independent of the estimates."""

    tables: ManyClassTables  # without logarithms
    trees: tuple[ContextTree, ...]
    # nodes, cells tuples of (n,) int64: of each tree, in the order of `rest_log` and `cell_log`.
    nodes: tuple[Integers, ...]
    cells: tuple[Integers, ...]

    def filled(self, estimates: Sequence[Estimates]) -> ManyClassTables:
        """Fill the tables with estimates, one per tree."""
        root = [_root(tree, estimate) for tree, estimate in zip(self.trees, estimates, strict=True)]
        rest = [estimate.rest[nodes] for estimate, nodes in zip(estimates, self.nodes, strict=True)]
        cells = [estimate.probability[cells] for estimate, cells in zip(estimates, self.cells, strict=True)]
        tables = self.tables._replace(
            root_log=_logs(root),
            rest_log=_logs(rest),
            cell_log=_logs(cells),
            is_hierarchical=np.array([bool(estimates and estimates[0].hierarchical)], np.uint8),
        )
        freeze_arrays(*tables)
        return tables


def compile_many_class_tables(
    schema: Schema,
    structure: Structure,
    class_counts: Integers,
    trees: Sequence[ContextTree],
    estimates: Sequence[Estimates],
) -> ManyClassTables:
    """Compile estimates into the arrays that `kernels.look_up_many_class_probabilities` reads; arguments as in
    `compile_lookup_tables`.

    Their size is proportional to the cells of the trees, not to contexts times classes.
    """
    return many_class_table_layout(schema, structure, class_counts, trees).filled(estimates)


def many_class_table_layout(
    schema: Schema, structure: Structure, class_counts: Integers, trees: Sequence[ContextTree]
) -> Layout:
    """Lay out the tables; parameters as in `compile_many_class_tables`."""
    parts = [_contexts(tree) for tree in trees]
    sizes = np.array([part.branch.size for part in parts], np.int64)
    first = np.cumsum(sizes) - sizes
    parents = [parent for of_one in structure.parents for parent in of_one]
    nothing = np.empty(0, np.float32)
    tables = ManyClassTables(
        attribute=np.array(structure.order, np.int64),
        n_values=np.array([tree.n_values for tree in trees], np.int64),
        parent_starts=offsets_from_sizes([len(of_one) for of_one in structure.parents]),
        parents=np.array(parents, np.int64),
        parent_sizes=schema.domain_sizes[parents].astype(np.int64),
        value_starts=offsets_from_sizes([tree.n_values for tree in trees])[:-1],
        root_log=nothing,
        roots=first,
        child_starts=_joined([part.child_starts + start for part, start in zip(parts, first, strict=True)], np.int64),
        child_ends=_joined([part.child_ends + start for part, start in zip(parts, first, strict=True)], np.int64),
        branch=_joined([part.branch for part in parts], np.int32),
        rest_starts=offsets_from_sizes(_joined([part.n_rests for part in parts], np.int64)),
        rest_class=_joined([part.rest_class for part in parts], np.uint16),
        rest_log=nothing,
        pair_starts=offsets_from_sizes(_joined([part.n_pairs for part in parts], np.int64)),
        pair_value=_joined([part.pair_value for part in parts], np.int32),
        cell_starts=offsets_from_sizes(_joined([part.n_cells for part in parts], np.int64)),
        cell_class=_joined([part.cell_class for part in parts], np.uint16),
        cell_log=nothing,
        log_prior=smoothed_log_class_prior(class_counts),
        is_hierarchical=np.zeros(1, np.uint8),
    )
    return Layout(tables, tuple(trees), tuple(part.node for part in parts), tuple(part.cell for part in parts))


def _joined(parts: Sequence[Array], dtype: type) -> Array:
    return np.concatenate([np.empty(0, dtype), *parts]).astype(dtype, copy=False)


def _contexts(tree: ContextTree) -> _Contexts:
    """Return the contexts of one attribute, merged over all classes."""
    context, of_class, branch, above = _merged(tree)
    n_contexts = branch.size
    n_children = np.bincount(above[1:], minlength=n_contexts)
    child_ends = 1 + np.cumsum(n_children)
    nodes = np.lexsort((of_class[1:], context[1:])) + 1
    node_of_cell = tree.node_of_cell()
    cells = np.arange(int(tree.cell_starts[1]), tree.n_cells)
    cells = cells[np.lexsort((of_class[node_of_cell[cells]], tree.cell_value[cells], context[node_of_cell[cells]]))]
    pair_key = context[node_of_cell[cells]] * tree.n_values + tree.cell_value[cells]
    pair_first = np.flatnonzero(np.diff(pair_key, prepend=-1))
    return _Contexts(
        child_starts=child_ends - n_children,
        child_ends=child_ends,
        branch=branch.astype(np.int32),
        n_rests=np.bincount(context[1:], minlength=n_contexts),
        rest_class=of_class[nodes].astype(np.uint16),
        node=nodes,
        n_pairs=np.bincount(pair_key[pair_first] // tree.n_values, minlength=n_contexts),
        pair_value=(pair_key[pair_first] % tree.n_values).astype(np.int32),
        n_cells=np.diff(np.append(pair_first, pair_key.size)),
        cell_class=of_class[node_of_cell[cells]].astype(np.uint16),
        cell=cells,
    )


def _merged(tree: ContextTree) -> tuple[Integers, Integers, Integers, Integers]:
    """Return the context and class of each node, and the last parent's value and the context above for each context."""
    context, of_class = np.zeros(tree.n_nodes, np.int64), np.zeros(tree.n_nodes, np.int64)
    branches, aboves, n_contexts = [np.full(1, -1, np.int64)], [np.full(1, -1, np.int64)], 1
    for level in range(1, tree.level_starts.size - 1):
        nodes = slice(int(tree.level_starts[level]), int(tree.level_starts[level + 1]))
        if level == 1:
            of_class[nodes] = tree.branch[nodes]
            continue
        above = tree.parent[nodes]
        of_class[nodes] = of_class[above]
        radix = int(tree.branch[nodes].max(initial=0)) + 1
        paths, place = np.unique(context[above] * radix + tree.branch[nodes], return_inverse=True)
        context[nodes] = n_contexts + place
        aboves.append(paths // radix)
        branches.append(paths % radix)
        n_contexts += paths.size
    return context, of_class, np.concatenate(branches), np.concatenate(aboves)


def _root(tree: ContextTree, estimates: Estimates) -> Floats:
    """Return the estimate of each value at the root, (v,) float64; unobserved values share the rest."""
    root = np.full(tree.n_values, estimates.rest[0])
    cells = slice(0, int(tree.cell_starts[1]))
    root[tree.cell_value[cells]] = estimates.probability[cells]
    return root


def _logs(parts: Sequence[Floats]) -> Float32s:
    with np.errstate(divide="ignore"):
        return np.concatenate([np.empty(0, np.float32), *(np.log(part).astype(np.float32) for part in parts)])
