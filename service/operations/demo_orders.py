"""Simulated orders of a shop for the demo: 14 dependent columns, one of which is whether the parcel was late.

The share of late parcels is known exactly for every row, so the demo knows the lowest possible log loss of any model.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Integers = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]

TARGET = "late"
USER = "user"
FIRST_WEEK = dt.date(2026, 1, 26)
N_FILES = 5
CHUNK_ROWS = 50_000
DAY_S = 86_400

# Degrees north and east, thousands of people.
CITIES = (
    ("Amsterdam", 52.37, 4.9, 920), ("Antwerp", 51.22, 4.4, 530), ("Barcelona", 41.39, 2.17, 1650),
    ("Berlin", 52.52, 13.4, 3750), ("Bilbao", 43.26, -2.93, 345), ("Bologna", 44.49, 11.34, 390),
    ("Bordeaux", 44.84, -0.58, 260), ("Brussels", 50.85, 4.35, 1210), ("Budapest", 47.5, 19.04, 1750),
    ("Copenhagen", 55.68, 12.57, 650), ("Dresden", 51.05, 13.74, 560), ("Dublin", 53.35, -6.26, 590),
    ("Frankfurt", 50.11, 8.68, 770), ("Gdańsk", 54.35, 18.65, 470), ("Geneva", 46.2, 6.14, 205),
    ("Gothenburg", 57.71, 11.97, 590), ("Graz", 47.07, 15.44, 290), ("Hamburg", 53.55, 9.99, 1850),
    ("Helsinki", 60.17, 24.94, 660), ("Kraków", 50.06, 19.94, 800), ("Lille", 50.63, 3.07, 235),
    ("Lisbon", 38.72, -9.14, 550), ("Lyon", 45.76, 4.84, 520), ("Madrid", 40.42, -3.7, 3300),
    ("Marseille", 43.3, 5.37, 870), ("Milan", 45.46, 9.19, 1370), ("Munich", 48.14, 11.58, 1490),
    ("Naples", 40.85, 14.27, 910), ("Oslo", 59.91, 10.75, 700), ("Paris", 48.86, 2.35, 2100),
    ("Porto", 41.15, -8.61, 230), ("Prague", 50.08, 14.44, 1300), ("Rome", 41.9, 12.5, 2750),
    ("Rotterdam", 51.92, 4.48, 655), ("Seville", 37.39, -5.98, 685), ("Stockholm", 59.33, 18.07, 980),
    ("Valencia", 39.47, -0.38, 800), ("Vienna", 48.21, 16.37, 1950), ("Warsaw", 52.23, 21.01, 1860),
    ("Zürich", 47.37, 8.54, 430),
)  # fmt: skip
# Degrees north and east.
WAREHOUSES = (
    ("Rotterdam Haven", 51.92, 4.48), ("Leipzig Nord", 51.34, 12.37), ("Lyon Est", 45.76, 4.84),
    ("Zaragoza", 41.65, -0.89), ("Malmö", 55.6, 13.0),
)  # fmt: skip
# Share of the market, what it adds to the log odds of being late.
CARRIERS = (
    ("Northline", 0.4, 0.0), ("Velo Courier", 0.15, -0.5), ("Heavyhaul", 0.12, 0.2), ("Skybridge", 0.13, 0.1),
    ("Postale", 0.2, 0.9),
)  # fmt: skip
# Share, kilograms and euros of one, what it adds to the log odds of being late.
CATEGORIES = (
    ("books", 0.14, 0.4, 16, -0.1), ("clothing", 0.17, 0.5, 38, 0.0), ("shoes", 0.08, 1.1, 70, 0.0),
    ("toys", 0.09, 0.9, 24, 0.0), ("phones", 0.05, 0.4, 420, -0.4), ("computers", 0.04, 2.6, 760, -0.2),
    ("kitchen", 0.09, 2.2, 46, 0.1), ("furniture", 0.05, 17.0, 180, 0.9), ("garden", 0.06, 7.5, 52, 0.4),
    ("sports", 0.07, 2.8, 58, 0.1), ("cosmetics", 0.08, 0.3, 27, -0.2), ("pet food", 0.08, 6.0, 31, 0.2),
)  # fmt: skip
WEATHER = ("dry", "rain", "storm", "snow")
FIRST_NAMES = """
    Aino Amelie Anders Beatriz Carlo Chiara Daniel Elif Emma Fatima Hugo Ines Jakub Jan Joana Karim
    Katarzyna Lars Lena Luca Maja Marek Maria Nora Oskar Paolo Sofia Thomas Yusuf Zofia
"""
LAST_NAMES = """
    Andersson Bauer Costa DeVries Dubois Fernandez Fischer Horvath Jansen Kowalska Larsen Moreau Novak Petit
    Ricci Romano Silva Virtanen Weber Yilmaz
"""


def _columns(rows: tuple[tuple[Any, ...], ...]) -> list[Any]:
    """Return the columns of rows as arrays: texts as objects, numbers as float64."""
    return [np.array(each, object if isinstance(each[0], str) else np.float64) for each in zip(*rows, strict=True)]


CITY, CITY_NORTH, CITY_EAST, INHABITANTS = _columns(CITIES)
WAREHOUSE, WAREHOUSE_NORTH, WAREHOUSE_EAST = _columns(WAREHOUSES)
CARRIER, CARRIER_SHARE, CARRIER_TROUBLE = _columns(CARRIERS)
CATEGORY, CATEGORY_SHARE, WEIGHT_KG, PRICE, CATEGORY_TROUBLE = _columns(CATEGORIES)


@dataclass(frozen=True)
class Orders:
    """The files of the demo."""

    train: tuple[Path, ...]  # a file for each week
    tomorrow: Path  # one day more
    test: Path  # the days after it
    n_train: int  # rows
    n_tomorrow: int
    n_test: int
    n_bytes: int  # of the training rows in memory, as Arrow holds them
    late_shares: Floats  # (n_test,) float64; the true probability that each parcel of the test file is late


@dataclass(frozen=True)
class Shop:
    """Fixed parameters of the simulated shop."""

    seed: int
    users: np.ndarray[Any, np.dtype[np.object_]]  # (n_users,) of str
    share_of_user: Floats  # (n_users,) float64
    home_of_user: Integers  # (n_users,) int64; index into `CITIES`
    taste_of_user: Floats  # (n_users, n_categories) float64; cumulative shares of categories
    trouble_of_user: Floats  # (n_users,) float64; how much their address adds to the log odds of being late
    km: Floats  # (n_warehouses, n_cities) float64; road between them

    @classmethod
    def opened(cls, seed: int) -> Shop:
        """Create a shop with its customers."""
        rng = np.random.default_rng([seed, 0])
        users = np.array(
            [_address(first, last) for first in FIRST_NAMES.split() for last in LAST_NAMES.split()], dtype=object
        )
        share = rng.permutation(1.0 / np.arange(10, users.size + 10))
        taste = rng.dirichlet(8 * CATEGORY_SHARE / CATEGORY_SHARE.sum(), users.size)
        return cls(
            seed,
            users,
            share / share.sum(),
            rng.choice(CITY.size, users.size, p=INHABITANTS / INHABITANTS.sum()),
            np.cumsum(taste, axis=1),
            rng.normal(0, 0.6, users.size),
            _roads(),
        )

    def orders(self, first: dt.date, begin: float, end: float, n_rows: int, first_id: int) -> tuple[pa.Table, Floats]:
        """Draw orders sorted by time, between `begin` and `end` in days from `first`, and the true probability that
        each is late.
        """
        rng = np.random.default_rng([self.seed, first_id])
        seconds = np.sort(rng.integers(int(begin * DAY_S), int(end * DAY_S), n_rows))
        user = rng.choice(self.users.size, n_rows, p=self.share_of_user)
        # Now and then a present goes to another town.
        city = np.where(rng.random(n_rows) < 0.06, rng.integers(0, CITY.size, n_rows), self.home_of_user[user])
        category = (rng.random((n_rows, 1)) > self.taste_of_user[user][:, :-1]).sum(axis=1)
        items = 1 + rng.poisson(0.7, n_rows)
        weight = items * WEIGHT_KG[category] * rng.lognormal(0, 0.4, n_rows)
        amount = items * PRICE[category] * rng.lognormal(0, 0.5, n_rows)
        # The nearest warehouse has most things.
        by_distance = np.argsort(self.km, axis=0)
        warehouse = by_distance[(rng.random(n_rows) > 0.8).astype(int), city]
        km = self.km[warehouse, city] * rng.uniform(0.95, 1.1, n_rows)
        carrier = _carriers(km, weight, rng)
        weather = _weather(city, rng)
        promised = 1 + (km > 350).astype(int) + (km > 900) + 2 * (rng.random(n_rows) < 0.3)
        odds = _log_odds(km, carrier, weather, promised, weight, category) + self.trouble_of_user[user]
        share = 1 / (1 + np.exp(-odds))
        midnight = np.datetime64(first, "s")
        table = pa.table(
            {
                "order_id": np.arange(first_id, first_id + n_rows),
                "ordered_at": pa.array(midnight + seconds.astype("timedelta64[s]"), pa.timestamp("s")),
                USER: self.users[user],
                "city": CITY[city],
                "warehouse": WAREHOUSE[warehouse],
                "carrier": CARRIER[carrier],
                "category": CATEGORY[category],
                "weather": np.array(WEATHER, dtype=object)[weather],
                "promised_days": promised,
                "items": items,
                "amount_eur": amount.round(2),
                "weight_kg": pa.array(weight.round(2), mask=rng.random(n_rows) < 0.07),
                "distance_km": km.round(1),
                TARGET: np.where(rng.random(n_rows) < share, "yes", "no").astype(object),
            }
        )
        return table, share


def _address(first: str, last: str) -> str:
    """Return an e-mail address in a domain reserved for examples."""
    domain = ("example.com", "mail.example", "example.org")[(len(first) + len(last)) % 3]
    return f"{first}.{last}@{domain}".lower()


def _roads() -> Floats:
    """Kilometres from each warehouse to each city: 1.25 times the great-circle distance, at least 15."""
    north, east, north_of, east_of = map(np.radians, (WAREHOUSE_NORTH, WAREHOUSE_EAST, CITY_NORTH, CITY_EAST))
    half = np.sin((north[:, None] - north_of) / 2) ** 2
    half += np.cos(north)[:, None] * np.cos(north_of) * np.sin((east[:, None] - east_of) / 2) ** 2
    roads: Floats = np.maximum(15.0, 1.25 * 2 * 6371 * np.arcsin(np.sqrt(half)))
    return roads


def _carriers(km: Floats, weight: Floats, rng: np.random.Generator) -> Integers:
    """Draw the carrier of each order: bicycle in town, one carrier for heavy parcels, air for distant ones."""
    wish = rng.gumbel(size=(km.size, CARRIER.size)) + np.log(CARRIER_SHARE)
    wish[:, 1] += 2.0 * (km < 60) - 2.5 * (km > 150)
    wish[:, 2] += 1.6 * (weight > 15)
    wish[:, 3] += 1.3 * (km > 900) - 1.5 * (weight > 15)
    chosen: Integers = wish.argmax(axis=1)
    return chosen


def _weather(city: Integers, rng: np.random.Generator) -> Integers:
    """Draw an index into `WEATHER` for each order; snow is more frequent in the north."""
    north = CITY_NORTH[city]
    cold, wet = (north - 47) / 6 + rng.normal(0, 1, city.size), rng.normal(0, 1, city.size)
    return np.select([(cold > 1.1) & (wet > 0), wet > 1.4, wet > 0.2], [3, 2, 1], 0)


def _log_odds(
    km: Floats, carrier: Integers, weather: Integers, promised: Integers, weight: Floats, category: Integers
) -> Floats:
    """Log odds of being late: thresholds of numbers, and interactions of columns."""
    odds = -3.4 + CARRIER_TROUBLE[carrier] + CATEGORY_TROUBLE[category]
    odds += np.array([0.0, 0.3, 0.8, 1.5])[weather]
    odds += 0.9 * (km > 400) + 0.8 * (km > 1000) + 1.6 * ((promised <= 2) & (km > 700))
    odds += 1.4 * ((weather == 3) & (carrier == 1)) + 1.1 * ((weather == 2) & (carrier == 3))
    odds += 1.2 * ((weight > 20) & (carrier != 2)) - 0.7 * (promised >= 4)
    log_odds: Floats = odds
    return log_odds


def write_orders(directory: Path, n_rows: int, seed: int) -> Orders:
    """Write five weeks of orders, `n_rows` in total, the day after them, and the rest of that week, chunk by chunk."""
    shop = Shop.opened(seed)
    directory.mkdir(parents=True, exist_ok=True)
    n_bytes, paths, ends = 0, [], [week * n_rows // N_FILES for week in range(N_FILES + 1)]
    for week, (begin, end) in enumerate(pairwise(ends)):
        paths.append(directory / f"week-{week + 1}.parquet")
        monday = FIRST_WEEK + dt.timedelta(7 * week)
        n_bytes += sum(table.nbytes for table, _ in _written(shop, paths[-1], monday, 7, end - begin, begin + 1))
    n_tomorrow, n_test = max(n_rows // 25, 500), max(n_rows // 10, 1000)
    monday = FIRST_WEEK + dt.timedelta(7 * N_FILES)
    tomorrow, test = directory / "tomorrow.parquet", directory / "later.parquet"
    for _ in _written(shop, tomorrow, monday, 1, n_tomorrow, n_rows + 1):
        pass
    later = _written(shop, test, monday + dt.timedelta(1), 6, n_test, n_rows + n_tomorrow + 1)
    shares = np.concatenate([share for _, share in later])
    return Orders(tuple(paths), tomorrow, test, n_rows, n_tomorrow, n_test, n_bytes, shares)


def _written(
    shop: Shop, path: Path, first: dt.date, n_days: int, n_rows: int, first_id: int
) -> Iterator[tuple[pa.Table, Floats]]:
    """Write the orders of some days to a file, and yield each chunk once it is written."""
    starts = [*range(0, n_rows, CHUNK_ROWS), n_rows]
    with pq.ParquetWriter(path, shop.orders(first, 0, n_days, 1, first_id)[0].schema, compression="zstd") as writer:
        for begin, end in pairwise(starts):
            days = begin / n_rows * n_days, end / n_rows * n_days
            table, share = shop.orders(first, *days, end - begin, first_id + begin)
            writer.write_table(table)
            yield table, share
