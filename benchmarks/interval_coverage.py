"""How often 90 % credible intervals hold the true class probabilities, whole and with columns missing, on rows of known networks.

python -m benchmarks.interval_coverage --learners auto eskdb kdb nb
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pyarrow as pa

from benchmarks.measuring import Figure, machine, options, report
from learners.kernels.arrays import Codes, Floats
from learners.passes.learner import drive
from learners.passes.sources.source import Source
from learners.registry import recipes
from learners.schema.encoding.encode import encode
from service.operations.bench import KnownNetwork

N_ATTRIBUTES, N_VALUES, N_PARENTS, LEVEL = 7, 3, 2, 0.9


def truth(network: KnownNetwork, x: Codes, known: list[int]) -> Floats:
    """(n_rows, n_classes) P(class | the known attributes): the others summed out by enumeration."""
    hidden = [a for a in range(N_ATTRIBUTES) if a not in known]
    joint = np.zeros((x.shape[1], network.prior.size))
    for values in product(range(N_VALUES), repeat=len(hidden)):
        filled = x.copy()
        filled[hidden] = np.array(values, x.dtype).reshape(-1, 1)
        own = np.tile(network.prior, (x.shape[1], 1))
        for a, (parents, table) in enumerate(zip(network.parents, network.tables, strict=True)):
            own *= table[(slice(None), *(filled[parent] for parent in parents), filled[a])].T
        joint += own
    return joint / joint.sum(axis=1, keepdims=True)


def table_of(x: Codes, attributes: list[int]) -> dict[str, pa.Array]:
    """The attributes as columns of words."""
    return {f"a{a}": pa.array(x[a].astype(str)) for a in attributes}


def held(learner: str, seed: int, n_rows: int, n_asked: int, n_classes: int) -> tuple[float, float]:
    """The shares of intervals that hold the truth: of whole rows, and of 1 to 6 known columns, as many rows of each."""
    network = KnownNetwork.random(N_ATTRIBUTES, N_VALUES, n_classes, N_PARENTS, seed)
    random = np.random.default_rng(seed)
    every = list(range(N_ATTRIBUTES))
    x, y = network.draw(n_rows, random)
    rows = pa.table(table_of(x, every) | {"class": pa.array(y.astype(str))})
    model = drive(recipes.learner(learner, {}, "class"), Source.of_table(rows), threads=2)
    asked, _ = network.draw(n_asked, random)
    shares = []
    for n_known in range(1, N_ATTRIBUTES + 1):
        known = sorted(random.choice(every, n_known, replace=False).tolist())
        (batch,) = pa.table(table_of(asked, known)).to_batches()
        low, high = model.credible_intervals(encode(batch, model.schema), LEVEL)
        expected = truth(network, asked, known)
        shares.append(float(np.mean((low <= expected) & (expected <= high))))
    return shares[-1], float(np.mean(shares[:-1]))


def main() -> None:
    asked = options(
        __doc__, learners=["auto", "eskdb", "kdb", "nb"], networks=20, rows=[1000, 12_000], asked=500
    ).parse_args()
    figures = []
    for learner, n_rows in product(asked.learners, asked.rows):
        found = [held(learner, seed, n_rows, asked.asked, 2 + seed % 2) for seed in range(asked.networks)]
        for what, shares in zip(("whole", "missing"), zip(*found, strict=True), strict=True):
            mean = float(np.mean(shares))
            print(f"{learner}, {n_rows} rows, {asked.networks} networks: {what} {mean:.3f}", flush=True)
            figures.append(Figure(f"{learner}, {n_rows} rows: {what}", mean, min(shares), max(shares), ".85–.97"))
    report("90 % intervals that hold the truth: mean over the networks", figures, machine(), asked.json)


if __name__ == "__main__":
    main()
