"""A sum-product network as flat arrays, validated on creation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from learners.circuits.errors import InvalidCircuit
from learners.circuits.kernels import (
    CATEGORICAL,
    EXPONENTIAL,
    GAUSSIAN,
    INDICATOR,
    KIND_NAMES,
    KNOTS,
    N_KNOTS,
    ORIGIN,
    POISSON,
    PRODUCT,
    QUANTILE,
    ROUNDED,
    STEP,
    STUDENT,
    SUM,
    node_depths,
    write_node_scopes,
)
from learners.kernels.arrays import Array, Floats, Int8s, Integers, Mask, Uint64s, read_only_array

Made = TypeVar("Made")

# Weights of files are rounded to ten digits or so.
NORMALISATION_TOLERANCE = 1e-6


class CircuitArrays(NamedTuple):
    """Nodes in topological order: children before parents, the root last."""

    kind: Int8s  # (n_nodes,) int8: SUM, PRODUCT or the kind of a leaf
    # (n_nodes + 1,) int64: the children of node k are children[child_starts[k] : child_starts[k + 1]].
    child_starts: Integers
    children: Integers  # (n_edges,) int64
    log_weight: Floats  # (n_edges,) float64: zero on the edges of products; the weights of a sum add up to one
    variable: Integers  # (n_nodes,) int64: of a leaf; -1 for sums and products
    # (n_nodes + 1,) int64: the parameters of leaf k are leaf_parameters[leaf_starts[k] : leaf_starts[k + 1]].
    leaf_starts: Integers
    # (n_parameters,) float64: indicator: its value. Categorical: log p of each value. Gaussian: mean, standard
    # deviation. Poisson: rate. Exponential: rate. Student: centre, scale, degrees of freedom. Rounded, lognormal and
    # quantile: mean and standard deviation of the column's transform (itself, its logarithm, normal quantiles), the
    # recorded step whose cells have a mass, or 0 of a density, and a number of the grid; of quantile also the number of
    # knots, their places, and the normal quantiles there.
    leaf_parameters: Floats
    n_values: Integers  # (n_variables,) int64: size of each discrete domain; 0 for a variable of numeric leaves


DTYPES = tuple(
    np.dtype(name) for name in ("int8", "int64", "int64", "float64", "int64", "int64", "float64", "int64")
)  # of CircuitArrays


class Circuit:
    """A complete, decomposable and normalized circuit; immutable. Raises InvalidCircuit, naming the node.

    arrays: used without copying if their types match, and made read-only.
    kind, child_starts, children, log_weight, variable, leaf_starts, leaf_parameters, n_values: as in `CircuitArrays`.
    ranges: ranges (low, high) of numeric variables, to which moments and draws truncate leaves; the weights already
    include them.
    References: Zhao, Gordon (2017), section 2.1.
    """

    ranges: Mapping[int, tuple[float, float]] = MappingProxyType({})

    def __init__(self, arrays: CircuitArrays) -> None:
        self._take(arrays)
        _check_shapes(self.arrays)
        _check_leaves(self.arrays)
        _check_weights(self.arrays)
        self.scopes = _scopes(self.arrays)
        # What was made of the structure alone, for all circuits that have it.
        self._of_structure: dict[str, Any] = {}

    def _take(self, arrays: CircuitArrays) -> None:
        """Set the arrays, converted to the right types if necessary."""
        given = arrays._asdict().values()
        self.arrays = CircuitArrays(*(_checked(array, dtype) for array, dtype in zip(given, DTYPES, strict=True)))
        (
            self.kind,
            self.child_starts,
            self.children,
            self.log_weight,
            self.variable,
            self.leaf_starts,
            self.leaf_parameters,
            self.n_values,
        ) = self.arrays

    @property
    def n_nodes(self) -> int:
        """Number of sums, products and leaves."""
        return self.kind.size

    @property
    def n_edges(self) -> int:
        """Number of edges from sums and products."""
        return self.children.size

    @property
    def n_variables(self) -> int:
        """Number of variables, including those without a leaf."""
        return self.n_values.size

    @property
    def root(self) -> int:
        """Index of the root, the last node."""
        return self.kind.size - 1

    @cached_property
    def depth(self) -> int:
        """Number of edges on the longest path from the root to a leaf."""
        depths = np.zeros(self.n_nodes, np.int64)
        node_depths(self.child_starts, self.children, depths)
        return int(depths[-1])

    def scope(self, node: int) -> list[int]:
        """Return the variables below a node, ascending."""
        return np.flatnonzero(np.unpackbits(self.scopes[node].view(np.uint8), bitorder="little")).tolist()

    def summary(self) -> dict[str, object]:
        """Return a readable summary of the circuit's size."""
        sizes = np.bincount(self.kind, minlength=len(KIND_NAMES))
        is_sum = np.repeat(self.kind == SUM, np.diff(self.child_starts))
        leaf_sizes = np.diff(self.leaf_starts)
        n_free = int(is_sum.sum() - sizes[SUM] + leaf_sizes[self.kind > INDICATOR].sum() - sizes[CATEGORICAL])
        n_parents = np.bincount(self.children, minlength=self.n_nodes)
        return {
            "nodes": self.n_nodes,
            "edges": self.n_edges,
            "sum_edges": int(is_sum.sum()),
            "depth": self.depth,
            "variables": self.n_variables,
            "free_parameters": n_free,
            "kinds": {name: int(n) for name, n in zip(KIND_NAMES, sizes, strict=True) if n},
            "shared_inner_nodes": int(((n_parents > 1) & (self.kind <= PRODUCT)).sum()),
            "scope_of_root": len(self.scope(self.root)),
        }

    def to_arrays(self) -> dict[str, Array]:
        """Return the arrays by name."""
        return self.arrays._asdict()

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Circuit:
        """Build the circuit from the output of `to_arrays`, without copying; the arrays may be memory-mapped and
        read-only.

        Raises InvalidCircuit if an array is missing or they are not a valid circuit.
        """
        for name in CircuitArrays._fields:
            if name not in arrays:
                raise InvalidCircuit(f"has no array {name!r}")
        return cls(CircuitArrays(*(arrays[name] for name in CircuitArrays._fields)))

    def with_parameters(self, log_weight: Floats | None = None, leaf_parameters: Floats | None = None) -> Circuit:
        """Return the same structure with other weights or leaves, sharing everything computed from the structure.

        Raises InvalidCircuit if they do not fit.
        """
        arrays = self.arrays
        if log_weight is not None:
            arrays = arrays._replace(log_weight=log_weight)
        if leaf_parameters is not None:
            arrays = arrays._replace(leaf_parameters=leaf_parameters)
        new = object.__new__(Circuit)
        new._take(arrays)
        if new.log_weight.shape != self.log_weight.shape or new.leaf_parameters.shape != self.leaf_parameters.shape:
            raise InvalidCircuit("has arrays of inconsistent lengths")
        _check_leaves(new.arrays)
        _check_weights(new.arrays)
        new.scopes, new.ranges = self.scopes, self.ranges
        indicators = self.leaf_starts[:-1][self.kind == INDICATOR]
        is_same = np.array_equal(new.leaf_parameters[indicators], self.leaf_parameters[indicators])
        new._of_structure = self._of_structure if is_same else {}
        return new

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle only arrays and ranges; cached results are recomputed."""
        return Circuit, (self.arrays,), {"ranges": dict(self.ranges)} if self.ranges else None

    def __eq__(self, other: object) -> bool:
        """Return whether all arrays are equal."""
        if not isinstance(other, Circuit):
            return NotImplemented
        return all(np.array_equal(self.to_arrays()[name], other.to_arrays()[name]) for name in CircuitArrays._fields)

    def __repr__(self) -> str:
        """Return a one-line description."""
        return f"Circuit({self.n_nodes} nodes, {self.n_edges} edges, {self.n_variables} variables)"


def cached_on_circuit_structure(circuit: Circuit, make: Callable[[Circuit], Made]) -> Made:
    """Compute a function of a circuit's structure and indicators, cached for all circuits that share them."""
    cache = circuit._of_structure
    name = make.__qualname__
    return cache[name] if name in cache else cache.setdefault(name, make(circuit))


def cached_on_circuit(circuit: Circuit, make: Callable[[Circuit], Made]) -> Made:
    """Compute a function of a circuit, cached with it.

    Threads that ask at the same time may each compute it; all get the first result.
    """
    cache = vars(circuit)
    name = make.__qualname__
    return cache[name] if name in cache else cache.setdefault(name, make(circuit))


def _checked(array: Array, dtype: np.dtype) -> Array:
    values = np.asarray(array)
    if values.dtype.kind not in "iu" and dtype.kind == "i":
        raise InvalidCircuit(f"has an array of {values.dtype} instead of whole numbers")
    if values.dtype != dtype and values.dtype.kind in "iu" and values.size:
        limits = np.iinfo(dtype)
        if values.min() < limits.min or values.max() > limits.max:
            raise InvalidCircuit(f"has a whole number of more than {limits.bits} bits")
    # A view, so that an array that the caller still writes to elsewhere keeps its own flag.
    return read_only_array(np.ascontiguousarray(values, dtype).view())


def _check_shapes(arrays: CircuitArrays) -> None:
    n_nodes = arrays.kind.size
    if any(array.ndim != 1 for array in arrays):
        raise InvalidCircuit("has an array that is not one-dimensional")
    if not n_nodes:
        raise InvalidCircuit("has no nodes")
    sizes = (arrays.child_starts.size, arrays.leaf_starts.size, arrays.variable.size)
    if sizes != (n_nodes + 1, n_nodes + 1, n_nodes) or arrays.log_weight.size != arrays.children.size:
        raise InvalidCircuit("has arrays of inconsistent lengths")
    for starts, end in ((arrays.child_starts, arrays.children.size), (arrays.leaf_starts, arrays.leaf_parameters.size)):
        if starts[0] != 0 or starts[-1] != end or (np.diff(starts) < 0).any():
            raise InvalidCircuit("has offsets that do not ascend from zero to the length of the divided array")
    _refuse((arrays.kind < 0) | (arrays.kind > QUANTILE), "has an unknown kind")
    n_children = np.diff(arrays.child_starts)
    is_leaf = arrays.kind >= INDICATOR
    _refuse(is_leaf & (n_children > 0), "is a leaf with children")
    _refuse(~is_leaf & (n_children == 0), "has no children")
    _refuse(~is_leaf & (arrays.variable != -1), "has a variable but is not a leaf")
    if (arrays.n_values < 0).any():
        raise InvalidCircuit("has a domain of negative size")
    parents = np.repeat(np.arange(n_nodes), n_children)
    wrong = np.flatnonzero((arrays.children < 0) | (arrays.children >= parents))
    if wrong.size:
        child = int(arrays.children[wrong[0]])
        raise InvalidCircuit(f"has the child {child}, but children come before their parents", int(parents[wrong[0]]))


def _check_leaves(arrays: CircuitArrays) -> None:
    leaves = np.flatnonzero(arrays.kind >= INDICATOR)
    kind, variable = arrays.kind[leaves], arrays.variable[leaves]
    _refuse((variable < 0) | (variable >= arrays.n_values.size), "is a leaf of a variable that does not exist", leaves)
    domain = arrays.n_values[variable]
    is_finite = kind <= CATEGORICAL
    _refuse(is_finite & (domain == 0), "is a discrete leaf of a variable without a domain", leaves)
    _refuse(~is_finite & (domain > 0), "is a numeric leaf of a variable with a finite domain", leaves)
    n_parameters = np.diff(arrays.leaf_starts)
    if n_parameters[arrays.kind < INDICATOR].any():
        raise InvalidCircuit("has leaf parameters at a sum or product")
    expected = np.array([0, 0, 1, 0, 2, 1, 1, 3, 4, 4, 5])[kind] + np.where(kind == CATEGORICAL, domain, 0)
    expected += 2 * quantile_leaf_knot_counts(arrays, leaves)
    _refuse(n_parameters[leaves] != expected, "has the wrong number of parameters for its kind", leaves)
    first = arrays.leaf_parameters[arrays.leaf_starts[leaves]] if leaves.size else np.empty(0)
    is_code = (first >= 0) & (first < domain) & (first == np.floor(first))
    _refuse((kind == INDICATOR) & ~is_code, "indicates a value outside the domain", leaves)
    _refuse(~is_finite & ~np.isfinite(first), "has a parameter that is not a finite number", leaves)
    has_rate = (kind == POISSON) | (kind == EXPONENTIAL)
    _refuse(has_rate & ~(first > 0), "has a rate that is not positive", leaves)
    gaussian = leaves[(kind == GAUSSIAN) | (kind >= STUDENT)]
    spread = arrays.leaf_parameters[arrays.leaf_starts[gaussian] + 1]
    _refuse(~((spread > 0) & np.isfinite(spread)), "has a standard deviation that is not positive and finite", gaussian)
    _check_extras(arrays, leaves)
    categorical = leaves[kind == CATEGORICAL]
    _check_totals(arrays.leaf_parameters, arrays.leaf_starts, categorical, "has probabilities")


def quantile_leaf_knot_counts(arrays: CircuitArrays, leaves: Integers) -> Integers:
    """Return the number of knots of quantile leaves, if plausible, (n_leaves,) int64; 0 for others."""
    at = arrays.leaf_starts[leaves] + 2 + N_KNOTS
    sizes = np.diff(arrays.leaf_starts)[leaves]
    has_knots = (arrays.kind[leaves] == QUANTILE) & (sizes > 2 + N_KNOTS)
    counts = np.zeros(leaves.size, np.int64)
    knots = arrays.leaf_parameters[at[has_knots]]
    counts[has_knots] = np.where((knots >= 2) & (knots <= sizes[has_knots]), knots, 0).astype(np.int64)
    return counts


def _check_extras(arrays: CircuitArrays, leaves: Integers) -> None:
    """Refuse degrees of freedom without a variance, negative steps, invalid grids, and knots that do not ascend."""
    kind, first = arrays.kind[leaves], arrays.leaf_starts[leaves] + 2
    student, warped, knotted = leaves[kind == STUDENT], leaves[kind >= ROUNDED], leaves[kind == QUANTILE]
    freedom = arrays.leaf_parameters[first[kind == STUDENT]]
    _refuse(
        ~((freedom > 2) & np.isfinite(freedom)), "has degrees of freedom that are not above two and finite", student
    )
    step, origin = (arrays.leaf_parameters[first[kind >= ROUNDED] + i] for i in (STEP, ORIGIN))
    is_rounded = arrays.kind[warped] == ROUNDED
    wrong = ~((step >= 0) & np.isfinite(step) & np.isfinite(origin)) | (is_rounded & (step == 0))
    _refuse(wrong, "has an invalid step or grid", warped)
    broken = [not _ascends(arrays.leaf_parameters, at) for at in first[kind == QUANTILE].tolist()]
    _refuse(np.array(broken, np.bool_), "has fewer than two knots, or knots that do not ascend", knotted)


def _ascends(parameters: Floats, at: int) -> bool:
    n = int(parameters[at + N_KNOTS])
    knots = parameters[at + KNOTS : at + KNOTS + 2 * n].reshape(2, n)
    return n >= 2 and bool(np.isfinite(knots).all() and (np.diff(knots) > 0).all())


def _check_weights(arrays: CircuitArrays) -> None:
    is_sum = arrays.kind == SUM
    of_product = np.repeat(arrays.kind == PRODUCT, np.diff(arrays.child_starts))
    wrong = np.flatnonzero(of_product & (arrays.log_weight != 0))
    if wrong.size:
        node = int(np.searchsorted(arrays.child_starts, wrong[0], side="right")) - 1
        raise InvalidCircuit("is a product with a weight", node)
    _check_totals(arrays.log_weight, arrays.child_starts, np.flatnonzero(is_sum), "has weights")


def _check_totals(logs: Floats, starts: Integers, nodes: Integers, what: str) -> None:
    """Refuse a node whose logs contain NaN, or do not exponentiate to a sum of one."""
    if not nodes.size:
        return
    # The segments of other nodes lie between: `reduceat` takes pairs of bounds, of which every other is wanted.
    padded = np.append(np.exp(np.minimum(logs, 1.0)), 0.0)
    bounds = np.stack([starts[nodes], starts[nodes + 1]], axis=1).ravel()
    total = np.add.reduceat(padded, bounds)[::2]
    wrong = ~(np.abs(total - 1.0) <= NORMALISATION_TOLERANCE)
    if wrong.any():
        worst = int(np.argmax(wrong))
        raise InvalidCircuit(f"{what} that add up to {total[worst]:.9g}, not to one", int(nodes[worst]))


def _scopes(arrays: CircuitArrays) -> Uint64s:
    """Return the variables of each node as a bit set, (n_nodes, n_words) uint64; refuses incomplete or nondecomposable
    nodes.
    """
    scopes = np.zeros((arrays.kind.size, max(1, -(-arrays.n_values.size // 64))), np.uint64)
    fault = np.full(1, -1, np.int64)
    write_node_scopes(arrays.kind, arrays.child_starts, arrays.children, arrays.variable, scopes, fault)
    node = int(fault[0])
    if node >= 0:
        reason = (
            "is a sum whose children have different scopes, so it is not complete"
            if arrays.kind[node] == SUM
            else "is a product whose children share a variable, so it is not decomposable"
        )
        raise InvalidCircuit(reason, node)
    return read_only_array(scopes)


def _refuse(wrong: Mask, reason: str, nodes: Integers | None = None) -> None:
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InvalidCircuit(reason, at if nodes is None else int(nodes[at]))
