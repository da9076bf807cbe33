"""Tables of any size from a known Bayesian network, for `fewpass bench` and the benchmarks."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Codes = np.ndarray[Any, np.dtype[np.uint8]]
Floats = np.ndarray[Any, np.dtype[np.float64]]

TARGET = "class"
CHUNK_ROWS = 500_000


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


def write_synthetic(path: Path, n_rows: int, seed: int) -> None:
    """Draw a Parquet file from a network of 20 attributes, chunk by chunk, so that its size is bounded by the disk only."""
    network = KnownNetwork.random(n_attributes=20, n_values=4, n_classes=2, n_parents=2, seed=seed)
    rng = np.random.default_rng([seed, 1])
    values = pa.array(["low", "medium", "high", "extreme"])
    labels = pa.array(["no", "yes"])
    names = [*(f"attribute_{i:02d}" for i in range(len(network.parents))), TARGET]
    schema = pa.schema([(name, pa.dictionary(pa.int8(), pa.string())) for name in names])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, n_rows, CHUNK_ROWS):
            x, y = network.draw(min(CHUNK_ROWS, n_rows - start), rng)
            columns = [pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int8)), values) for codes in x]
            columns.append(pa.DictionaryArray.from_arrays(pa.array(y.astype(np.int8)), labels))
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
