"""The example data set: customers, some of whom cancel."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from service.product.datasets.registration import get_dataset, register_dataset
from service.product.datasets.uploads import dataset_upload_path
from service.requests.requests import DatasetRequest
from service.workspace import Workspace
from storage.datasets.dataset_definitions import Dataset
from storage.errors import NotFound
from storage.files.atomic_files import write_file_atomically

EXAMPLE, EXAMPLE_ROWS = "customers", 4_000
TARGET = "customer"


def register_example_dataset(workspace: Workspace) -> Dataset:
    """Register the example table, writing it if it is missing; repeating changes nothing. InvalidRequest, Conflict."""
    try:
        return get_dataset(workspace, EXAMPLE)
    except NotFound:
        place = dataset_upload_path(workspace, EXAMPLE, f"{EXAMPLE}.parquet")
    if not place.exists():
        with write_file_atomically(place) as draft:
            pq.write_table(draw_example_customers(EXAMPLE_ROWS, 1), draft)
    request = DatasetRequest(name=EXAMPLE, uris=[str(place)], target=TARGET)
    return register_dataset(workspace, request, is_remote=True)


def draw_example_customers(n_rows: int, seed: int) -> pa.Table:
    """Draw customers who leave or stay, one per row, with random seed `seed`.

    The columns are contract, months, internet, calls, payment, price and the class `customer`.
    """
    rng = np.random.default_rng(seed)
    contract = rng.choice(["monthly", "one year", "two years"], n_rows, p=[0.5, 0.3, 0.2])
    months = rng.gamma(np.where(contract == "monthly", 1.5, 4.0), 8.0).round()
    internet = rng.choice(["fibre", "cable", "none"], n_rows, p=[0.45, 0.4, 0.15])
    calls = rng.poisson(np.where(internet == "fibre", 2.2, 0.9))
    payment = np.where(rng.random(n_rows) < np.where(months > 20, 0.7, 0.3), "card", "invoice")
    price = (15 + 40 * (internet == "fibre") + 20 * (internet == "cable") + rng.normal(0, 5, n_rows)).round(1)
    score = -2.2 + 1.6 * (contract == "monthly") + 0.45 * calls - 0.04 * months + 0.5 * (payment == "invoice")
    leaves = np.where(rng.random(n_rows) < 1 / (1 + np.exp(-score)), "leaves", "stays")
    return pa.table(
        {
            "contract": contract,
            "months": months,
            "internet": internet,
            "calls": calls,
            "payment": payment,
            "price": price,
            "customer": leaves,
        }
    )
