"""How often credible intervals of 90 % hold the true probability, on rows drawn from known networks.

python -m benchmarks.ensemble_coverage --rows 500 2000 10000
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.measuring import Figure, report
from learners.passes.learner import drive
from learners.passes.sources.source import Source
from learners.registry import recipes
from learners.schema.encoding.encode import encode

N_ATTRIBUTES, N_VALUES, N_TEST = 8, 3, 1000
LEARNERS = {"eskdb": {}, "auto": {}, "kdb": {"k": 2, "estimator": "hdp-map"}, "nb": {"estimator": "hdp-map"}}


class Network:
    """A random network: the class, and attributes with up to k attribute parents."""

    def __init__(self, k: int, n_classes: int, seed: int) -> None:
        self.random = np.random.default_rng([k, n_classes, seed])
        self.n_classes = n_classes
        self.prior = self.random.dirichlet(np.full(n_classes, 5.0))
        self.parents = [tuple(self.random.permutation(i)[:k].tolist()) for i in range(N_ATTRIBUTES)]
        self.tables = [
            self.random.dirichlet(np.ones(N_VALUES), (n_classes, *[N_VALUES] * len(parents)))
            for parents in self.parents
        ]

    def draw(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """(N_ATTRIBUTES, n) codes and (n,) classes."""
        y = self.random.choice(self.n_classes, n, p=self.prior)
        x = np.zeros((N_ATTRIBUTES, n), np.int64)
        for i, parents in enumerate(self.parents):
            cumulative = self.tables[i][(y, *(x[parent] for parent in parents))].cumsum(axis=1)
            x[i] = (self.random.random(n)[:, np.newaxis] > cumulative[:, :-1]).sum(axis=1)
        return x, y

    def true_probabilities(self, x: np.ndarray) -> np.ndarray:
        """(n, n_classes) P(class | attributes)."""
        joint = np.tile(np.log(self.prior), (x.shape[1], 1))
        for i, parents in enumerate(self.parents):
            for label in range(self.n_classes):
                joint[:, label] += np.log(self.tables[i][(label, *(x[parent] for parent in parents), x[i])])
        p = np.exp(joint - joint.max(axis=1, keepdims=True))
        return p / p.sum(axis=1, keepdims=True)


def table_of(x: np.ndarray, y: np.ndarray | None = None) -> pa.Table:
    columns = {f"a{i}": pa.array([f"v{value}" for value in codes]) for i, codes in enumerate(x)}
    return pa.table(columns | ({} if y is None else {"class": [f"c{label:02d}" for label in y]}))


def coverage(learner: str, network: Network, n_rows: int) -> tuple[float, float]:
    """The share of intervals that hold the true probability, and their mean width."""
    model = drive(
        recipes.learner(learner, LEARNERS[learner], "class"), Source.of_table(table_of(*network.draw(n_rows)))
    )
    x, _ = network.draw(N_TEST)
    low, high = model.credible_intervals(encode(table_of(x), model.schema), 0.9)
    places = [int(name[1:]) for name in model.schema.classes]
    truth = network.true_probabilities(x)[:, places]
    return float(np.mean((low <= truth) & (truth <= high))), float(np.mean(high - low))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[500, 2000, 10_000])
    parser.add_argument("--classes", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--parents", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--learners", nargs="+", default=list(LEARNERS))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    figures = []
    for learner in asked.learners:
        for n_rows in asked.rows:
            for n_classes in asked.classes:
                for k in asked.parents:
                    found = [coverage(learner, Network(k, n_classes, seed), n_rows) for seed in range(asked.seeds)]
                    shares = [share for share, _ in found]
                    width = float(np.mean([mean for _, mean in found]))
                    what = f"{learner}: {n_rows} rows, {n_classes} classes, {k} parents"
                    figures.append(
                        Figure(
                            what,
                            float(np.mean(shares)),
                            min(shares),
                            max(shares),
                            ".85 to .97",
                            "",
                            f"mean width {width:.3f}",
                        )
                    )
                    print(figures[-1], flush=True)
    report("coverage of 90 % intervals", figures, {}, asked.json)


if __name__ == "__main__":
    main()
