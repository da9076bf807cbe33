"""Tables of any size from a known Bayesian network, for `fewpass bench` and the benchmarks."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Codes = np.ndarray[Any, np.dtype[np.uint8]]
Floats = np.ndarray[Any, np.dtype[np.float64]]

CHUNK_ROWS = 500_000


@dataclass(frozen=True)
class KnownTable:
    """A training and a test Parquet file, and what is known about them."""

    target: str
    train: Path
    test: Path
    n_train: int
    n_test: int
    bayes_error: float


@dataclass(frozen=True)
class KnownNetwork:
    """A Bayesian network classifier whose truth is known.

    Attributes
    ----------
    prior : (n_classes,) float64
    parents : per attribute, the indices of its parents, all smaller than its own
    tables : per attribute, P(x | y, parents) as (n_classes, v of each parent, ..., v) float64
    """

    prior: Floats
    parents: tuple[tuple[int, ...], ...]
    tables: tuple[Floats, ...]

    @classmethod
    def random(cls, n_attributes: int, n_values: int, n_classes: int, n_parents: int, seed: int) -> "KnownNetwork":
        """A network whose tables are Dirichlet draws; few attributes are strongly related to the class."""
        rng = np.random.default_rng(seed)
        parents = tuple(
            tuple(sorted(rng.choice(i, size=min(i, n_parents), replace=False).tolist())) for i in range(n_attributes)
        )
        tables = []
        for i, its_parents in enumerate(parents):
            shape = (n_classes, *(n_values for _ in its_parents))
            common = rng.dirichlet(np.full(n_values, 1.0), size=shape[1:] or None)
            own = rng.dirichlet(np.full(n_values, 1.0), size=shape)
            weight = 0.5 if i % 4 == 0 else 0.15
            tables.append((1 - weight) * common + weight * own)
        return cls(rng.dirichlet(np.full(n_classes, 8.0)), parents, tuple(tables))

    def draw(self, n_rows: int, rng: np.random.Generator) -> tuple[Codes, Codes]:
        """Rows of the network: x (n_attributes, n_rows) and y (n_rows,), both uint8."""
        y = rng.choice(self.prior.size, size=n_rows, p=self.prior).astype(np.uint8)
        x = np.empty((len(self.parents), n_rows), np.uint8)
        for i, (its_parents, table) in enumerate(zip(self.parents, self.tables, strict=True)):
            cumulative = np.cumsum(table, axis=-1)
            given = cumulative[(y, *(x[parent] for parent in its_parents))]
            x[i] = (rng.random((n_rows, 1)) > given[:, :-1]).sum(axis=1)
        return x, y

    def posterior(self, x: Codes) -> Floats:
        """The true P(y | x) of each row, (n_rows, n_classes)."""
        n_rows = x.shape[1]
        log_joint = np.tile(np.log(self.prior), (n_rows, 1))
        for i, (its_parents, table) in enumerate(zip(self.parents, self.tables, strict=True)):
            for label in range(self.prior.size):
                log_joint[:, label] += np.log(table[(label, *(x[parent] for parent in its_parents), x[i])])
        log_joint -= log_joint.max(axis=1, keepdims=True)
        joint: Floats = np.exp(log_joint)
        joint /= joint.sum(axis=1, keepdims=True)
        return joint


def write_synthetic(directory: Path, n_rows: int, seed: int, n_attributes: int = 20) -> KnownTable:
    """Draw a training file of n_rows and a test file, chunk by chunk, so that the size is bounded by the disk only.

    The error of the Bayes-optimal classifier is the mean over the test rows of 1 - max P(y | x), with the true P.
    """
    directory.mkdir(parents=True, exist_ok=True)
    network = KnownNetwork.random(n_attributes, n_values=4, n_classes=2, n_parents=2, seed=seed)
    train, test = directory / "train.parquet", directory / "test.parquet"
    n_test = min(max(n_rows // 5, 2_000), 200_000)
    for _ in _written(network, train, n_rows, np.random.default_rng([seed, 1])):
        pass
    certain = sum(
        float(network.posterior(x).max(axis=1).sum())
        for x in _written(network, test, n_test, np.random.default_rng([seed, 2]))
    )
    return KnownTable("class", train, test, n_rows, n_test, 1 - certain / n_test)


def _written(network: KnownNetwork, path: Path, n_rows: int, rng: np.random.Generator) -> Iterator[Codes]:
    """Draw and write the file, yielding the codes of each chunk after it was written."""
    values = pa.array(["low", "medium", "high", "extreme"])
    labels = pa.array(["no", "yes"])
    schema = pa.schema(
        [(f"attribute_{i:02d}", pa.dictionary(pa.int8(), pa.string())) for i in range(len(network.parents))]
        + [("class", pa.dictionary(pa.int8(), pa.string()))]
    )
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, n_rows, CHUNK_ROWS):
            x, y = network.draw(min(CHUNK_ROWS, n_rows - start), rng)
            columns = [pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int8)), values) for codes in x]
            columns.append(pa.DictionaryArray.from_arrays(pa.array(y.astype(np.int8)), labels))
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
            yield x
