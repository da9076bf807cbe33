"""A table whose classes differ in where numbers lie together."""

import numpy as np
import pyarrow as pa


def numbers_of(seed, n_rows):
    """Three classes that differ in where three numbers lie together; the first one is missing now and then."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n_rows)
    around = np.array([[0.0, 0.0, 0.0], [1.0, -1.0, 0.5], [0.5, 1.0, -1.0]])[y]
    z = around + rng.normal(size=(n_rows, 3)) @ np.array([[1.0, 0.9, 0.0], [0.0, 0.4, 0.8], [0.0, 0.0, 0.3]])
    z[rng.random(n_rows) < 0.05, 0] = np.nan
    columns = {f"n{i}": pa.array(z[:, i], from_pandas=True) for i in range(3)}
    word = np.array(["p", "q"])[(rng.random(n_rows) < 0.3 + 0.2 * y).astype(int)]
    return pa.table(columns | {"word": word, "class": np.array(["a", "b", "c"])[y]})
