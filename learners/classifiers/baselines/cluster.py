"""XGBoost on a Dask cluster: every worker encodes its own rows, keeps them binned, and grows the same trees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np

from learners.classifiers.baselines.boosted import CodeTable
from learners.classifiers.baselines.settings import XGBoostParameters, booster_settings
from learners.kernels.arrays import Float32s, Integers
from learners.passes.dask_cluster import grouped
from learners.passes.engine import Advance
from learners.passes.learner import Rows
from learners.passes.sources.source import Source
from learners.schema import Schema

if TYPE_CHECKING:
    from xgboost import Booster


class ClusterMatrix:
    """XGBoost's binned rows, on the workers' memory; rows with a cluster."""

    is_external = False

    def __init__(self, rows: Rows, max_bin: int) -> None:
        from dask import array
        from dask.delayed import delayed
        from xgboost import dask as xgboost

        assert rows.cluster is not None
        self.client, self.n_classes = rows.cluster.client, rows.schema.n_classes
        groups = [group for source in rows.sources for group in grouped(source, rows.cluster.n_workers)]
        counts = self.client.gather(
            [self.client.submit(class_counts, rows.schema, group, pure=False) for group in groups]
        )
        self.class_counts = np.sum(counts, axis=0)
        self.n_rows = int(self.class_counts.sum())
        encoded = [
            (delayed(encoded_rows)(rows.schema, group), int(own.sum()))
            for group, own in zip(groups, counts, strict=True)
            if own.any()
        ]
        width = rows.schema.n_attributes
        x = array.concatenate([array.from_delayed(pair[0], (n, width), np.float32) for pair, n in encoded])
        y = array.concatenate([array.from_delayed(pair[1], (n,), np.float32) for pair, n in encoded])
        self._matrix: xgboost.DaskQuantileDMatrix | None = xgboost.DaskQuantileDMatrix(
            self.client,
            x,
            y,
            max_bin=max_bin,
            enable_categorical=True,
            feature_types=CodeTable(rows.schema).feature_types,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._matrix = None

    def boost(self, threads: int, advance: Advance, parameters: XGBoostParameters) -> Booster:
        """Grow the trees on all workers; `advance` is told at the end."""
        from xgboost import dask as xgboost

        del threads  # Dask decides
        settings = booster_settings(parameters, self.n_classes)
        grown = xgboost.train(self.client, settings, self._matrix, num_boost_round=parameters.rounds)
        advance(parameters.rounds, parameters.rounds)
        return grown["booster"]


def class_counts(schema: Schema, group: Source) -> Integers:
    """On a worker: (n_classes,) rows of each class."""
    counts = np.zeros(schema.n_classes, np.int64)
    for chunk in Rows(schema, [group]):
        assert chunk.y is not None
        counts += np.bincount(chunk.y, minlength=counts.size)
    return counts


def encoded_rows(schema: Schema, group: Source) -> tuple[Float32s, Float32s]:
    """On a worker: features (n, n_attributes) float32 and classes (n,) float32."""
    table = CodeTable(schema)
    chunks = list(Rows(schema, [group]))
    x = np.concatenate([table.features(chunk.x) for chunk in chunks])
    return x, np.concatenate([chunk.y for chunk in chunks if chunk.y is not None]).astype(np.float32)
