"""Train a booster from encoded rows, on one machine or a Dask cluster."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Self

import numpy as np
import xgboost

from learners.classifiers.baselines.boosted import CodeTable, XGBoostParameters, xgboost_booster_parameters
from learners.kernels.arrays import Codes, Float32s, Integers
from learners.passes.dask_cluster import fragment_groups
from learners.passes.engine import Advance
from learners.passes.learner import Rows
from learners.passes.memory import memory_limit
from learners.passes.sources.source import Source
from learners.schema import Chunk, Schema

if TYPE_CHECKING:
    from xgboost import Booster

# "auto" keeps up to this many binned values, of one or two bytes each, in memory, and fewer where the memory limit is low:
# with what XGBoost holds while it bins and grows, a value took 11 bytes.
EXTERNAL_VALUES, VALUE_BYTES = 2**28, 16
# Where a nominal column has as many values, splits into sets of them may follow chance: both ways are tried on rows left out.
MANY_VALUES = 100
TRIAL_ROWS, TRIAL_FOLDS = 20_000, 5
# float32 values handed over at once: larger pages make fewer files, 2^24 values take 64 MiB.
PAGE_VALUES = 2**24


class Matrix:
    """XGBoost's binned rows, in memory or in temporary files that are removed on closing."""

    def __init__(self, rows: Rows, max_bin: int, is_external: bool, threads: int, advance: Advance) -> None:
        self.is_external, self.n_classes = is_external, rows.schema.n_classes
        self._folder = tempfile.TemporaryDirectory(prefix="fewpass-xgboost-") if is_external else None
        pages = _Pages(rows, f"{self._folder.name}/rows" if self._folder else None, advance)
        try:
            kind = xgboost.ExtMemQuantileDMatrix if is_external else xgboost.QuantileDMatrix
            self._matrix: xgboost.DMatrix | None = kind(
                pages, max_bin=max_bin, nthread=threads, enable_categorical=True
            )
        except BaseException:
            self.close()
            raise
        self.class_counts = pages.class_counts
        self.n_rows = int(pages.class_counts.sum())
        self._rows = rows
        self.splits_one_value = False  # of a nominal column against all others, rather than sets of values

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the memory and remove the files."""
        self._matrix = None
        if self._folder is not None:
            self._folder.cleanup()

    def boost(self, threads: int, advance: Advance, parameters: XGBoostParameters) -> xgboost.Booster:
        """Train the trees; `advance` receives the rounds."""
        self.splits_one_value = one_value_splits_lose_less(self._rows, threads, parameters)
        one_hot = most_one_hot(self._rows.schema) if self.splits_one_value else None
        settings = xgboost_booster_parameters(parameters, self.n_classes, one_hot) | {"nthread": threads}
        callbacks = [_Rounds(parameters.rounds, advance)]
        return xgboost.train(settings, self._matrix, num_boost_round=parameters.rounds, callbacks=callbacks)


def most_one_hot(schema: Schema) -> int:
    """Return a number above the number of values of any column."""
    return int(schema.domain_sizes.max(initial=0)) + 1


def one_value_splits_lose_less(rows: Rows, threads: int, parameters: XGBoostParameters) -> bool:
    """Return whether splitting one value from the rest has a lower loss than splitting by sets of values, on a left-out
    fifth of a sample.

    False without a trial if no nominal column has `MANY_VALUES` values.
    """
    schema = rows.schema
    if not any(each.kind == "nominal" and each.n_values >= MANY_VALUES for each in schema.attributes):
        return False
    x, y, weights = _sample(rows)
    is_left_out = np.arange(y.size) % TRIAL_FOLDS == 0
    if not (is_left_out.any() and (~is_left_out).any()):
        return False
    types = CodeTable(schema).feature_types
    parts = [
        xgboost.DMatrix(x[own], y[own], weight=weights[own], feature_types=types, enable_categorical=True)
        for own in (~is_left_out, is_left_out)
    ]
    metric = "logloss" if schema.n_classes == 2 else "mlogloss"
    losses = []
    for one_hot in (None, most_one_hot(schema)):
        settings = xgboost_booster_parameters(parameters, schema.n_classes, one_hot)
        settings |= {"nthread": threads, "eval_metric": metric}
        found: dict[str, dict[str, list[float]]] = {}
        xgboost.train(
            settings, parts[0], parameters.rounds, evals=[(parts[1], "out")], evals_result=found, verbose_eval=False
        )
        losses.append(found["out"][metric][-1])
    return losses[1] < losses[0]


def _sample(rows: Rows) -> tuple[Float32s, Integers, Integers]:
    """Return the features, classes and weights of at most about `TRIAL_ROWS` evenly spaced rows."""
    codes, step, n_before = CodeTable(rows.schema), max(1, rows.n_rows // TRIAL_ROWS), 0
    x, y, weights = [], [], []
    for chunk, own in rows.weighted():
        assert chunk.y is not None
        chosen = np.arange(-n_before % step, chunk.n_rows, step)
        x.append(codes.features(np.ascontiguousarray(chunk.x[:, chosen])))
        y.append(chunk.y[chosen].astype(np.int64))
        weights.append(np.ones(chosen.size, np.int64) if own is None else own[chosen])
        n_before += chunk.n_rows
    return np.concatenate(x), np.concatenate(y), np.concatenate(weights)


def build_xgboost_matrix(
    rows: Rows, threads: int, advance: Advance, parameters: XGBoostParameters
) -> Matrix | ClusterMatrix:
    """Bin the rows; progress restarts with each of XGBoost's passes over them."""
    if rows.cluster is not None:
        return ClusterMatrix(rows, parameters.max_bin)
    is_external = parameters.external_memory
    if is_external == "auto":
        most = min(EXTERNAL_VALUES, memory_limit().n_bytes // VALUE_BYTES)
        is_external = rows.n_rows * rows.schema.n_attributes > most
    return Matrix(rows, parameters.max_bin, bool(is_external), threads, advance)


class _Pages(xgboost.DataIter):
    """Iterator over pages of several chunks, for XGBoost."""

    def __init__(self, rows: Rows, cache: str | None, advance: Advance) -> None:
        self._rows, self._advance = rows, advance
        self._codes = CodeTable(rows.schema)
        self._page_rows = max(1, PAGE_VALUES // rows.schema.n_attributes)
        self.class_counts = np.zeros(rows.schema.n_classes, np.int64)
        super().__init__(cache_prefix=cache)
        self.reset()

    def reset(self) -> None:
        """Restart at the first row."""
        self._pages = self._read()
        self._n_done = 0

    def next(self, input_data: Callable[..., object]) -> bool:
        """Pass the next page to XGBoost; returns False after the last."""
        page = next(self._pages, None)
        if page is None:
            return False
        x, y, weights = page
        if self._n_done == 0:
            self.class_counts[:] = 0
        counts = np.bincount(y, weights, self.class_counts.size)  # as doubles, which hold whole numbers of that size
        self.class_counts += counts.astype(np.int64)
        self._n_done += y.size
        self._advance(self._n_done, self._rows.n_rows)
        input_data(data=x, label=y.astype(np.float32), weight=weights, feature_types=self._codes.feature_types)
        return True

    def _read(self) -> Iterator[tuple[Float32s, Codes, Integers | None]]:
        held: list[tuple[Chunk, Integers | None]] = []
        n_held = 0
        for chunk, weights in self._rows.weighted():
            held.append((chunk, weights))
            n_held += chunk.n_rows
            if n_held >= self._page_rows:
                yield self._page(held)
                held, n_held = [], 0
        if held:
            yield self._page(held)

    def _page(self, held: list[tuple[Chunk, Integers | None]]) -> tuple[Float32s, Codes, Integers | None]:
        x = np.concatenate([self._codes.features(chunk.x) for chunk, _ in held])
        y = np.concatenate([chunk.y for chunk, _ in held if chunk.y is not None])
        weights = [own for _, own in held if own is not None]
        return x, y, np.concatenate(weights) if weights else None


class _Rounds(xgboost.callback.TrainingCallback):
    """Reports every round; an error raised by `advance` stops training."""

    def __init__(self, n_rounds: int, advance: Advance) -> None:
        super().__init__()
        self.n_rounds, self.advance = n_rounds, advance

    def after_iteration(self, model: xgboost.Booster, epoch: int, evals_log: object) -> bool:
        """Report the round; returns False, which lets XGBoost continue."""
        self.advance(epoch + 1, self.n_rounds)
        return False


class ClusterMatrix:
    """XGBoost's binned rows in the memory of Dask workers."""

    is_external = splits_one_value = False

    def __init__(self, rows: Rows, max_bin: int) -> None:
        from dask import array
        from dask.delayed import delayed
        from xgboost import dask as xgboost

        assert rows.cluster is not None
        self.client, self.n_classes = rows.cluster.client, rows.schema.n_classes
        groups = [group for source in rows.sources for group in fragment_groups(source, rows.cluster.n_workers)]
        counts = self.client.gather(
            [self.client.submit(count_classes_for_xgboost, rows.schema, group, pure=False) for group in groups]
        )
        self.class_counts = np.sum(counts, axis=0)
        self.n_rows = int(self.class_counts.sum())
        encoded = [
            (delayed(encode_rows_for_xgboost)(rows.schema, group), int(own.sum()))
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
        """Train the trees on all workers; `advance` is called at the end."""
        from xgboost import dask as xgboost

        del threads  # Dask decides
        settings = xgboost_booster_parameters(parameters, self.n_classes)
        grown = xgboost.train(self.client, settings, self._matrix, num_boost_round=parameters.rounds)
        advance(parameters.rounds, parameters.rounds)
        return grown["booster"]


def count_classes_for_xgboost(schema: Schema, group: Source) -> Integers:
    """Count the rows of each class, (n_classes,); runs on a worker."""
    counts = np.zeros(schema.n_classes, np.int64)
    for chunk in Rows(schema, [group]):
        assert chunk.y is not None
        counts += np.bincount(chunk.y, minlength=counts.size)
    return counts


def encode_rows_for_xgboost(schema: Schema, group: Source) -> tuple[Float32s, Float32s]:
    """Return features (n, n_attributes) float32 and classes (n,) float32; runs on a worker."""
    table = CodeTable(schema)
    chunks = list(Rows(schema, [group]))
    x = np.concatenate([table.features(chunk.x) for chunk in chunks])
    return x, np.concatenate([chunk.y for chunk in chunks if chunk.y is not None]).astype(np.float32)
