"""Evaluation and EM of circuits beside a plain loop over the edges, one row after the other, in one kernel of ours.

A figure of another machine misleads; this reference is compiled and measured in the same run, on one thread, in
processor time.

python -m benchmarks.circuits_plain
"""
# mypy: disallow-untyped-defs=False, check-untyped-defs=False

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from benchmarks.density import counts_of, rows_of
from benchmarks.measuring import Figure, alternated, figure, machine, report
from learners.circuits.answers import log_likelihood
from learners.circuits.circuit import Circuit
from learners.circuits.em import ExpectedCounts
from learners.circuits.kernels import PRODUCT, SUM
from learners.circuits.structures import hclt, learnspn
from learners.kernels.jit import kernel


@kernel
def plain_upward(kind, starts, children, weight, variable, leaf_starts, parameter, x, row, values):
    """OUT values (n_nodes,): of every node at one row; leaves are categorical."""
    for node in range(kind.size):
        if kind[node] == SUM:
            total = 0.0
            for e in range(starts[node], starts[node + 1]):
                total += weight[e] * values[children[e]]
            values[node] = total
        elif kind[node] == PRODUCT:
            total = 1.0
            for e in range(starts[node], starts[node + 1]):
                total *= values[children[e]]
            values[node] = total
        else:
            values[node] = parameter[leaf_starts[node] + x[variable[node], row]]


@kernel
def plain_logs(kind, starts, children, weight, variable, leaf_starts, parameter, x, values, logs):
    """OUT logs (n_rows,)."""
    for row in range(x.shape[1]):
        plain_upward(kind, starts, children, weight, variable, leaf_starts, parameter, x, row, values)
        logs[row] = np.log(values[kind.size - 1])


@kernel
def plain_expect(kind, starts, children, weight, variable, leaf_starts, parameter, x, values, flows, edge, leaf):
    """Add expected counts of edges (n_edges,) and of leaf values (n_parameters,)."""
    for row in range(x.shape[1]):
        plain_upward(kind, starts, children, weight, variable, leaf_starts, parameter, x, row, values)
        flows[:] = 0.0
        flows[kind.size - 1] = 1.0
        for node in range(kind.size - 1, -1, -1):
            share = flows[node]
            if share == 0.0:
                continue
            if kind[node] == SUM:
                for e in range(starts[node], starts[node + 1]):
                    t = share * weight[e] * values[children[e]] / values[node]
                    edge[e] += t
                    flows[children[e]] += t
            elif kind[node] == PRODUCT:
                for e in range(starts[node], starts[node + 1]):
                    flows[children[e]] += share
            else:
                leaf[leaf_starts[node] + x[variable[node], row]] += share


def plain_of(circuit: Circuit) -> tuple[np.ndarray, ...]:
    """What the plain kernels read, in linear space."""
    arrays = circuit.arrays
    weight, parameter = np.exp(arrays.log_weight), np.exp(arrays.leaf_parameters)
    leaf_starts = arrays.leaf_starts[:-1].copy()
    return arrays.kind, arrays.child_starts, arrays.children, weight, arrays.variable, leaf_starts, parameter


def measured(about: str, circuit: Circuit, few: np.ndarray, many: np.ndarray, rounds: int) -> list[Figure]:
    """Evaluation of a few rows and expected counts of many, beside the plain loop."""
    plain, values, flows = plain_of(circuit), np.empty(circuit.n_nodes), np.empty(circuit.n_nodes)
    logs, edge, leaf = np.empty(few.shape[1]), np.zeros(circuit.n_edges), np.zeros(circuit.leaf_parameters.size)
    seconds = alternated(
        rounds,
        time.process_time,
        plain_logs=lambda: plain_logs(*plain, few, values, logs),
        logs=lambda: log_likelihood(circuit, few),
        plain_em=lambda: plain_expect(*plain, many, values, flows, edge, leaf),
        em=lambda: ExpectedCounts(circuit).update(many),
    )
    np.testing.assert_allclose(logs, log_likelihood(circuit, few), rtol=1e-9)
    return [
        figure(f"evaluation ÷ plain loop, {about}", seconds["plain_logs"], seconds["logs"], "4 x", "8 x"),
        figure(f"EM ÷ plain loop, {about}", seconds["plain_em"], seconds["em"], "2 x", "4 x"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=["nltcs", "plants"])
    parser.add_argument("--rows", type=int, default=1000, help="to evaluate; EM sees ten times as many, if there are")
    parser.add_argument("--states", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    figures = []
    for name in args.sets:
        train = rows_of(name, "train")
        circuits = {
            f"hclt {args.states}": hclt(counts_of(train), args.states, 0),
            "learnspn": learnspn(train[:, :5000], [2] * train.shape[0], seed=0),
        }
        few, many = np.ascontiguousarray(train[:, : args.rows]), np.ascontiguousarray(train[:, : 10 * args.rows])
        for structure, circuit in circuits.items():
            about = f"{name}, {structure}, {circuit.n_edges:,} edges"
            figures += measured(about, circuit, few, many, args.rounds)
    report("circuits beside a plain loop", figures, machine(), args.json)


if __name__ == "__main__":
    main()
