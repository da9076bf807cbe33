"""A table to try everything with: customers of a telephone company who leave or stay."""

import numpy as np
import pyarrow as pa

TARGET = "customer"


def customers(n_rows: int, seed: int) -> pa.Table:
    """Customers who leave or stay, a row each, drawn by `seed`.

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
