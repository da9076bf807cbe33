"""The update formulas as published: moments by one pass up and one down, equations 14 and 15, and CCCP."""

from __future__ import annotations

import numba
import numpy as np

from benchmarks import map_circuits
from benchmarks.papers.page import Measured, mean_and_error, table
from learners.circuits.circuit import Circuit
from learners.circuits.evaluation.evaluate import log_values
from learners.circuits.kernels import INDICATOR, SUM
from learners.circuits.streaming.online import PseudoCounts, StreamingPosterior

EQUATION_14, EQUATION_15 = 14, 15
Array = np.ndarray
NO_NUMBERS = "The paper has no table for this: section 4 gives the formulas, and states that CCCP often outperforms ADF and BMM in log-likelihood."


@numba.njit(cache=True)
def edge_shares(kind, starts, children, weight, variable, value, x, values, derivatives, shares):
    """λ of every edge (equation 12): values up, derivatives down; returns the value of the root."""
    n = kind.size
    for k in range(n):
        if kind[k] == INDICATOR:
            values[k] = 1.0 if x[variable[k]] == value[k] else 0.0
        elif kind[k] == SUM:
            total = 0.0
            for e in range(starts[k], starts[k + 1]):
                total += weight[e] * values[children[e]]
            values[k] = total
        else:
            product = 1.0
            for e in range(starts[k], starts[k + 1]):
                product *= values[children[e]]
            values[k] = product
    derivatives[:] = 0.0
    derivatives[n - 1] = 1.0
    root = values[n - 1]
    for k in range(n - 1, -1, -1):
        d = derivatives[k]
        if kind[k] == SUM:
            for e in range(starts[k], starts[k + 1]):
                shares[e] = weight[e] * values[children[e]] * d / root if root > 0 else 0.0
                derivatives[children[e]] += weight[e] * d
        elif kind[k] != INDICATOR and d != 0.0:
            for e in range(starts[k], starts[k + 1]):
                others = 1.0
                for f in range(starts[k], starts[k + 1]):
                    if f != e:
                        others *= values[children[f]]
                derivatives[children[e]] += d * others
    return root


@numba.njit(cache=True)
def learn_rows(kind, starts, children, weight, variable, value, rows, counts, equation):
    """One pass of equation 14 or 15 over rows (n_variables, n); weights are the normalised counts, whose sums stay."""
    n = kind.size
    values, derivatives, shares = np.empty(n), np.empty(n), np.zeros(children.size)
    for row in range(rows.shape[1]):
        edge_shares(kind, starts, children, weight, variable, value, rows[:, row], values, derivatives, shares)
        for k in range(n):
            if kind[k] != SUM:
                continue
            first, last = starts[k], starts[k + 1]
            total = counts[first:last].sum()
            normaliser = 0.0
            for e in range(first, last):
                a, share = counts[e], shares[e]
                if equation == EQUATION_14:
                    # The left-hand side is (β - 1/2) / (Σ β - 1/2), where the sum stays.
                    before, after = max(a - 0.5, 1e-3) / (total - 0.5), (a + 0.5) / (total + 0.5)
                    weight[e] = 0.5 + (total - 0.5) * before ** (1 - share) * after**share
                else:
                    weight[e] = (1 - share) * a / total + share * (a + 1) / (total + 1)
                normaliser += weight[e]
            for e in range(first, last):
                weight[e] /= normaliser
                counts[e] = total * weight[e]


@numba.njit(cache=True)
def summed_shares(kind, starts, children, weight, variable, value, rows):
    """λ of every edge, summed over rows."""
    n = kind.size
    values, derivatives, shares = np.empty(n), np.empty(n), np.zeros(children.size)
    sums = np.zeros(children.size)
    for row in range(rows.shape[1]):
        edge_shares(kind, starts, children, weight, variable, value, rows[:, row], values, derivatives, shares)
        sums += shares
    return sums


def arrays_of(circuit: Circuit) -> tuple[Array, ...]:
    """What the kernels read: kinds, children, variables and values of indicators."""
    value = np.full(circuit.n_nodes, -1, np.int64)
    is_indicator = circuit.kind == INDICATOR
    value[is_indicator] = circuit.leaf_parameters[circuit.leaf_starts[:-1][is_indicator]].astype(np.int64)
    return circuit.kind, circuit.child_starts, circuit.children, circuit.variable, value


def of_sums(circuit: Circuit) -> Array:
    """The edges of sums, (n_edges,) bool."""
    return np.repeat(circuit.kind == SUM, np.diff(circuit.child_starts))


def random_counts(circuit: Circuit, seed: int, scale: float = 1.0) -> Array:
    """Pseudo-counts from 0.5 to 1.5, times a scale; equal ones would be a fixed point."""
    counts = scale * np.random.default_rng(seed).uniform(0.5, 1.5, circuit.n_edges)
    return np.where(of_sums(circuit), counts, 0.0)


def normalised(circuit: Circuit, counts: Array) -> Array:
    """Weights of the edges: one at products."""
    parent = np.repeat(np.arange(circuit.n_nodes), np.diff(circuit.child_starts))
    totals = np.bincount(parent, counts, circuit.n_nodes)[parent]
    return np.where(of_sums(circuit), counts / np.where(totals > 0, totals, 1.0), 1.0)


def with_weights(circuit: Circuit, weight: Array) -> Circuit:
    """The circuit with other weights."""
    with np.errstate(divide="ignore"):
        return Circuit(circuit.arrays._replace(log_weight=np.log(weight)))


def mean_log_likelihood(circuit: Circuit, weight: Array, rows: Array) -> float:
    """The mean log-likelihood of rows (n_variables, n), in nats."""
    return float(log_values(with_weights(circuit, weight), rows).mean())


def published(circuit: Circuit, rows: Array, seed: int, equation: int, scale: float, passes: int) -> Array:
    """Weights after passes of an equation."""
    kind, starts, children, variable, value = arrays_of(circuit)
    counts = random_counts(circuit, seed, scale)
    weight = normalised(circuit, counts)
    for _ in range(passes):
        learn_rows(kind, starts, children, weight, variable, value, rows, counts, equation)
    return weight


def ours(circuit: Circuit, rows: Array, seed: int, rule: str, scale: float, passes: int) -> Array:
    """Weights after passes of the product's ADF or BMM."""
    counts = random_counts(circuit, seed, scale)
    posterior = StreamingPosterior(circuit, PseudoCounts(counts, np.zeros(circuit.leaf_parameters.size), np.inf), rule)
    for _ in range(passes):
        posterior.update(rows)
    return np.exp(posterior.circuit().log_weight)


def data(name: str, n_rows: int) -> tuple[Circuit, Array, Array]:
    """A circuit of the data folder with indicators alone, training and test rows, (n_variables, n)."""
    circuit = map_circuits.circuit(name)
    train, test = (np.ascontiguousarray(map_circuits.rows(name, part).T) for part in ("train", "test"))
    return circuit, train[:, :n_rows], test[:, :2000]


def compared(equation: int, rule: str, is_quick: bool) -> Measured:
    """Test log-likelihood of an equation as published, and of the product's rule, after one pass and five."""
    names, seeds, n_rows = (("nltcs",), 2, 4_000) if is_quick else (("nltcs", "plants"), 5, 15_000)
    rows = []
    for name in names:
        circuit, train, test = data(name, n_rows)
        for how, learn in {
            f"equation {equation} as published": lambda *of: published(*of[:3], equation, *of[3:]),
            f"the product's `{rule}`": lambda *of: ours(*of[:3], rule, *of[3:]),
        }.items():
            for scale in (2.0, 30.0):
                cells = [
                    mean_and_error(
                        [
                            mean_log_likelihood(circuit, learn(circuit, train, seed, scale, passes), test)
                            for seed in range(seeds)
                        ]
                    )
                    for passes in (1, 5)
                ]
                rows.append([name, how, f"{scale:g}", *cells])
        at_random = [
            mean_log_likelihood(circuit, normalised(circuit, random_counts(circuit, seed)), test)
            for seed in range(seeds)
        ]
        rows.append([name, "the random start, scale 1", "", mean_and_error(at_random), ""])
    return Measured(
        [NO_NUMBERS, "", *table(["set", "rule", "scale of the first counts", "1 pass", "5 passes"], rows)],
        f"{', '.join(names)} with the circuits that LearnSPN learned, {n_rows:,} training and 2,000 test rows.",
        f"0 to {seeds - 1}, of the random pseudo-counts at the start",
        "means and standard errors of the test log-likelihood in nats over seeds.",
        (
            "the paper does not define how the normalised means determine the next counts; here their sums stay constant",
        ),
    )
