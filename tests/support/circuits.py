"""Small circuits, and rows and evidence for them."""

import math

import numpy as np

from learners.circuits.kernels import CATEGORICAL, EXPONENTIAL, GAUSSIAN, INDICATOR, POISSON
from learners.circuits.structures.text import CircuitBuilder
from learners.models.evidence import NoneOf, Range
from learners.schema import Attribute, Schema
from tests.naive.map import categorical, mixture


def random_rows(rng, circuit, n_rows, missing=0.3):
    """Complete and incomplete rows: codes, NaN where missing."""
    x = rng.integers(0, circuit.n_values[:, None], (circuit.n_variables, n_rows)).astype(float)
    x[rng.random(x.shape) < missing] = np.nan
    return x


def as_row(column):
    return {v: value for v, value in enumerate(column.tolist()) if not math.isnan(value)}


def mixed_circuit(rng):
    """A DAG of sums and products over one variable of every kind."""
    build = CircuitBuilder([3, 9, 0, 0, 0])

    def mixture(*children):
        return build.sum(children, np.log(rng.dirichlet(np.ones(len(children)))))

    few = [build.leaf(CATEGORICAL, 0, np.log(rng.dirichlet(np.ones(3)))) for _ in range(2)]
    many = [build.leaf(CATEGORICAL, 1, np.log(rng.dirichlet(np.ones(9)))) for _ in range(2)]
    some = build.sum([build.leaf(INDICATOR, 1, [value]) for value in (7, 2, 5)], np.log(rng.dirichlet(np.ones(3))))
    only = build.leaf(INDICATOR, 1, [4])
    normal = [build.leaf(GAUSSIAN, 2, [rng.normal(), rng.uniform(0.2, 2)]) for _ in range(3)]
    counts = [build.leaf(POISSON, 3, [rng.uniform(0.5, 5)]) for _ in range(2)]
    waits = [build.leaf(EXPONENTIAL, 4, [rng.uniform(0.5, 50)]) for _ in range(2)]
    shared = mixture(*normal)
    left = [
        build.product([mixture(*few), shared, mixture(many[0], only, some)]),
        build.product([few[0], normal[0], some]),
        build.product([few[1], shared, mixture(many[1], only)]),
    ]
    right = [build.product([counts[k], waits[k]]) for k in range(2)]
    tops = [build.product([mixture(*left), mixture(*right)]) for _ in range(2)]
    mixture(*tops, build.product([left[1], right[0]]))
    return build.circuit()


def mixed_rows(rng, n_rows, missing=0.3):
    x = np.stack([
        rng.integers(0, 3, n_rows), rng.integers(0, 9, n_rows), rng.normal(size=n_rows),
        rng.poisson(3, n_rows), rng.exponential(0.2, n_rows),
    ]).astype(float)  # fmt: skip
    x[rng.random(x.shape) < missing] = np.nan
    return x


def chain(n, p):
    """A mixture of two products of n Bernoulli leaves."""
    return mixture([[categorical(1 - p, p)] * n] * 2, [0.25, 0.75])


VALUES = ("a", "b", "c")


def schema_of(circuit):
    """Nominal columns x0, x1, … and columns of whole numbers in intervals, in turn."""
    sizes = circuit.n_values.tolist()
    attributes = [
        Attribute(f"x{v}", "nominal", VALUES[:size])
        if v % 2 == 0
        else Attribute(f"x{v}", "numeric", cuts=(10.0, 20.0)[: size - 1], arrow_type="int64")
        for v, size in enumerate(sizes)
    ]
    return Schema(tuple(attributes), None, ("",))


def some_evidence(rng, circuit, v):
    """Evidence of one column, its soft evidence, and the weight of each of its codes."""
    size = int(circuit.n_values[v])
    is_nominal = v % 2 == 0
    kind = rng.integers(5)
    if kind == 0:
        code = int(rng.integers(size))
        value = VALUES[code] if is_nominal else (5, 15, 25)[code]
        return {f"x{v}": value}, {}, np.eye(size)[code]
    if kind == 1:
        weights = rng.choice([0.0, 0.3, 1.0, 4.0], size)
        weights[rng.integers(size)] = 0.7
        names = VALUES if is_nominal else ("(-inf, 10]", "(10, 20]", "(20, inf]") if size == 3 else ("5", "15")
        return {}, {f"x{v}": dict(zip(names, weights.tolist(), strict=False))}, weights
    if not is_nominal and kind == 2:
        first = int(rng.integers(size))
        last = int(rng.integers(first, size))
        low, high = (None, 11, 21)[first], (10, 20, None)[last] if last < size - 1 else None
        if low is None and high is None:
            low, first = 11, 1
        return {f"x{v}": Range(low, high)}, {}, np.array([float(first <= code <= last) for code in range(size)])
    chosen = rng.random(size) < 0.6
    chosen[rng.integers(size)] = True
    told = [VALUES[code] if is_nominal else (5, 15, 25)[code] for code in np.flatnonzero(chosen)]
    if kind == 3 and not chosen.all():
        if not is_nominal:  # one number of an interval cannot be excluded, the whole interval can
            ends = (*("-inf", 10, 20)[:size], "inf")
            told = [f"({ends[code]}, {ends[code + 1]}]" for code in np.flatnonzero(chosen)]
        return {f"x{v}": NoneOf(tuple(told))}, {}, (~chosen).astype(float)
    return {f"x{v}": tuple(told)}, {}, chosen.astype(float)


# colour: missing is a value of its own; size: in intervals of numbers with fractions; weight: its own numbers; n: few numbers.
MIXED = Schema(
    (
        Attribute("colour", "nominal", ("red", "green"), has_missing=True),
        Attribute("size", "numeric", cuts=(1.0, 2.5), has_missing=True, arrow_type="double"),
        Attribute("weight", "numeric", arrow_type="double"),
        Attribute("n", "nominal", (3, 5, 8), arrow_type="int64"),
        Attribute("day", "numeric", cuts=(86_400.0 * 3,), arrow_type="date32[day]"),
        Attribute("rare", "nominal", (1, 2), n_folded=3, arrow_type="int64"),
    ),
    None,
    ("",),
)


CIRCUIT = mixture(
    [
        [categorical(0.1, 0.5, 0.4), categorical(0.2, 0.1, 0.2, 0.5), (GAUSSIAN, [1.0, 2.0]),
         categorical(0.0, 0.4, 0.6), categorical(0.3, 0.7), categorical(0.3, 0.3, 0.4)],
        [categorical(0.2, 0.8, 0.0), categorical(0.0, 0.6, 0.2, 0.2), (GAUSSIAN, [5.0, 1.0]),
         categorical(0.3, 0.3, 0.4), categorical(0.9, 0.1), categorical(0.1, 0.1, 0.8)],
    ],
    [0.4, 0.6],
)  # fmt: skip
