"""How often 90 % credible intervals hold the true class probabilities, whole and with columns missing, on rows of known networks.

python -m benchmarks.interval_coverage --learners auto eskdb kdb:k=2 tan nb

`--rare .02` gives the first class this share. `--settled 200000` also tells how often they hold what the same learner answers after so
many rows: an interval holds what chance in the rows leaves open, given the structure, and not how far a structure is from the truth.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

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


def known_network(seed: int, n_classes: int, rare: float) -> KnownNetwork:
    """A network, one of whose classes has a small share if `rare` is not zero."""
    network = KnownNetwork.random(N_ATTRIBUTES, N_VALUES, n_classes, N_PARENTS, seed)
    if not rare:
        return network
    others = network.prior[1:] / network.prior[1:].sum() * (1.0 - rare)
    return replace(network, prior=np.concatenate([[rare], others]))


def held(learner: str, network: KnownNetwork, seed: int, n_rows: int, n_asked: int, settled: int) -> dict[str, float]:
    """The shares of intervals that hold the truth: of whole rows, and of 1 to 6 known columns, as many rows of each.

    `settled`: the share, of whole rows, that holds what the same learner answers after so many rows; left out if 0.
    """
    random = np.random.default_rng(seed)
    every = list(range(N_ATTRIBUTES))

    def trained(n: int) -> Any:
        x, y = network.draw(n, random)
        rows = pa.table(table_of(x, every) | {"class": pa.array(y.astype(str))})
        name, _, text = learner.partition(":")
        parameters = {key: int(value) for key, _, value in (pair.partition("=") for pair in text.split(",") if pair)}
        return drive(recipes.learner(name, parameters, "class"), Source.of_table(rows), threads=2)

    model = trained(n_rows)
    asked, _ = network.draw(n_asked, random)
    shares = []
    found: dict[str, float] = {}
    for n_known in range(1, N_ATTRIBUTES + 1):
        known = sorted(random.choice(every, n_known, replace=False).tolist())
        (batch,) = pa.table(table_of(asked, known)).to_batches()
        chunk = encode(batch, model.schema)
        low, high = model.credible_intervals(chunk, LEVEL)
        classes = [int(name) for name in model.schema.classes]
        expected = truth(network, asked, known)[:, classes]
        shares.append(float(np.mean((low <= expected) & (expected <= high))))
        if settled and n_known == N_ATTRIBUTES:
            after = trained(settled)
            p = after.predict_proba(encode(batch, after.schema))
            p = p[:, [after.schema.classes.index(name) for name in model.schema.classes]]
            found["settled"] = float(np.mean((low <= p) & (p <= high)))
    return {"whole": shares[-1], "missing": float(np.mean(shares[:-1])), **found}


def main() -> None:
    chosen = options(
        __doc__, learners=["auto", "eskdb", "kdb", "tan", "nb"], networks=20, rows=[500, 1000, 12_000, 50_000], asked=500,
        settled=0, rare=0.0,
    ).parse_args()  # fmt: skip
    figures = []
    for learner, n_rows in product(chosen.learners, chosen.rows):
        found = [
            held(learner, known_network(seed, 2 + seed % 2, chosen.rare), seed, n_rows, chosen.asked, chosen.settled)
            for seed in range(chosen.networks)
        ]
        for what in found[0]:
            shares = [each[what] for each in found]
            mean = float(np.mean(shares))
            print(f"{learner}, {n_rows} rows, {chosen.networks} networks: {what} {mean:.3f}", flush=True)
            figures.append(Figure(f"{learner}, {n_rows} rows: {what}", mean, min(shares), max(shares), ".85–.97"))
    report("90 % intervals that hold the truth: mean over the networks", figures, machine(), chosen.json)


if __name__ == "__main__":
    main()
