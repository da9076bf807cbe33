"""The tables of the scoreboard, each split at random into Parquet files to train on and to predict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SETS = Path(__file__).parents[2].parent / "shared" / "data" / "classification"
FROM_SETS = (
    "adult",
    "bank_marketing",
    "covtype_50k",
    "electricity",
    "diabetes130",
    "flights_nyc13",
    "skin_segmentation",
    "letter",
    "krkopt",
)
QUICK = ("adult", "electricity", "orders", "interactions")
TEST_SHARE = 0.3
ORDERS, INTERACTIONS = 500_000, 20_000


@dataclass(frozen=True)
class Split:
    """Files of one table.

    Parameters
    ----------
    name, target : str
    train : Path
    tests : dict of float to Path
        The same rows to predict: by the share of the columns that is missing.
    one_row : Path
        The first of them.
    labels : list
        The true classes of these rows.
    """

    name: str
    target: str
    train: Path
    tests: dict[float, Path]
    one_row: Path
    labels: list[object]


def tables(names: list[str], real_rows: int) -> Iterator[tuple[str, str, pa.Table | None]]:
    """Name, class column and rows of each table; no rows where a file is absent."""
    made: dict[str, tuple[str, Callable[[], pa.Table]]] = {
        "orders": ("late", _orders),
        "real": ("outcome", lambda: _real(real_rows)),
        "nulls": ("outcome", lambda: _real(ORDERS, has_many_nulls=True)),
        "interactions": ("class", _interactions),
    }
    for name in names:
        if name in made:
            target, make = made[name]
            yield name, target, make()
        else:
            path = SETS / f"{name}.parquet"
            yield name, "class", pq.read_table(path) if path.is_file() else None


def _orders() -> pa.Table:
    """The orders of `fewpass demo`, those of the days after them included."""
    import tempfile

    from service.operations.demo_orders import write_orders

    with tempfile.TemporaryDirectory() as folder:
        orders = write_orders(Path(folder), ORDERS, 1)
        return pa.concat_tables([pq.read_table(path) for path in (*orders.train, orders.tomorrow, orders.test)])


def _real(n_rows: int, has_many_nulls: bool = False) -> pa.Table:
    from benchmarks.real_tables import MANY_NULLS, NULLS, arrow_table

    return arrow_table(n_rows, np.random.default_rng(1), MANY_NULLS if has_many_nulls else NULLS)


def _interactions() -> pa.Table:
    """Numbers of which none tells much on its own."""
    from sklearn.datasets import make_classification

    x, y = make_classification(INTERACTIONS, 10, n_informative=5, n_clusters_per_class=4, random_state=1)
    return pa.table({f"x{i}": x[:, i] for i in range(x.shape[1])} | {"class": np.array(["no", "yes"])[y]})


def split(
    name: str, table: pa.Table, target: str, folder: Path, missing: tuple[float, ...], seed: int, most: int | None
) -> Split:
    """Write 70 % of the rows, at most so many, to train on, and the others without their class, whole and with columns missing.

    Which columns are missing is drawn once for the table; at least one stays.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(table.num_rows)
    n_test = round(TEST_SHARE * table.num_rows)
    test, train = table.take(np.sort(order[:n_test][:most])), table.take(np.sort(order[n_test:][:most]))
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(train, folder / "train.parquet")
    attributes = [column for column in table.column_names if column != target]
    hidden = rng.permutation(attributes).tolist()
    tests = {}
    for share in (0.0, *missing):
        gone = hidden[: min(round(share * len(hidden)), len(hidden) - 1)]
        tests[share] = folder / f"test-{100 * share:.0f}.parquet"
        pq.write_table(test.select([column for column in attributes if column not in gone]), tests[share])
    pq.write_table(test.select(attributes).slice(0, 1), folder / "one-row.parquet")
    return Split(name, target, folder / "train.parquet", tests, folder / "one-row.parquet", test[target].to_pylist())
