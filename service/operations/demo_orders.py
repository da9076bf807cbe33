"""The orders of a shop, for the demo: 14 columns that depend on each other, of which one says whether the parcel was late.

The share of late parcels is known exactly for every row, so the demo can tell the least log loss that any model could have.
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

from service.operations.demo_names import CARRIERS, CATEGORIES, CITIES, FIRST_NAMES, LAST_NAMES, WAREHOUSES, WEATHER

Integers = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]

TARGET = "late"
USER = "user"
FIRST_WEEK = dt.date(2026, 1, 26)
N_FILES = 5
CHUNK_ROWS = 50_000
DAY_S = 86_400


@dataclass(frozen=True)
class Orders:
    """The files of the demo.

    Attributes
    ----------
    train : tuple of Path
        A file for each week.
    tomorrow : Path
        One day more.
    test : Path
        The days after it.
    n_train, n_tomorrow, n_test : int
        Rows.
    n_bytes : int
        Of the training rows in memory, as Arrow holds them.
    late_shares : (n_test,) float64
        The true probability that each parcel of the test file is late.
    """

    train: tuple[Path, ...]
    tomorrow: Path
    test: Path
    n_train: int
    n_tomorrow: int
    n_test: int
    n_bytes: int
    late_shares: Floats


@dataclass(frozen=True)
class Days:
    """Some days: the first, how many, and the seed of what happens in them."""

    first: dt.date
    n: int
    seed: int


@dataclass(frozen=True)
class Shop:
    """What does not change from order to order.

    Attributes
    ----------
    users : (n_users,) of str
    share_of_user : (n_users,) float64
    home_of_user : (n_users,) int64
        Index into `CITIES`.
    taste_of_user : (n_users, n_categories) float64
        Cumulative shares of categories.
    trouble_of_user : (n_users,) float64
        How much their address adds to the log odds of being late.
    km : (n_warehouses, n_cities) float64
        Road between them.
    """

    users: np.ndarray[Any, np.dtype[np.object_]]
    share_of_user: Floats
    home_of_user: Integers
    taste_of_user: Floats
    trouble_of_user: Floats
    km: Floats

    @classmethod
    def opened(cls, seed: int) -> Shop:
        """A shop with its customers."""
        rng = np.random.default_rng([seed, 0])
        users = np.array([_address(first, last) for first in FIRST_NAMES for last in LAST_NAMES], dtype=object)
        share = rng.permutation(1.0 / np.arange(10, users.size + 10))
        inhabitants = np.array([city.inhabitants for city in CITIES])
        usual = np.array([category.share for category in CATEGORIES])
        taste = rng.dirichlet(8 * usual / usual.sum(), users.size)
        return cls(
            users,
            share / share.sum(),
            rng.choice(len(CITIES), users.size, p=inhabitants / inhabitants.sum()),
            np.cumsum(taste, axis=1),
            rng.normal(0, 0.6, users.size),
            _roads(),
        )

    def orders(self, days: Days, begin: float, end: float, n_rows: int, first_id: int) -> tuple[pa.Table, Floats]:
        """Orders in the sequence of their times, and the true probability that each is late.

        Parameters
        ----------
        days : Days
        begin, end : float
            The part of the days, from 0 to 1.
        n_rows : int
        first_id : int
            Number of the first.
        """
        rng = np.random.default_rng([days.seed, first_id])
        seconds = np.sort(rng.integers(int(begin * days.n * DAY_S), int(end * days.n * DAY_S), n_rows))
        user = rng.choice(self.users.size, n_rows, p=self.share_of_user)
        # Now and then a present goes to another town.
        city = np.where(rng.random(n_rows) < 0.06, rng.integers(0, len(CITIES), n_rows), self.home_of_user[user])
        category = (rng.random((n_rows, 1)) > self.taste_of_user[user][:, :-1]).sum(axis=1)
        items = 1 + rng.poisson(0.7, n_rows)
        weight = items * _of(CATEGORIES, "weight_kg")[category] * rng.lognormal(0, 0.4, n_rows)
        amount = items * _of(CATEGORIES, "price")[category] * rng.lognormal(0, 0.5, n_rows)
        # The nearest warehouse has most things.
        by_distance = np.argsort(self.km, axis=0)
        warehouse = by_distance[(rng.random(n_rows) > 0.8).astype(int), city]
        km = self.km[warehouse, city] * rng.uniform(0.95, 1.1, n_rows)
        carrier = _carriers(km, weight, rng)
        weather = _weather(city, rng)
        promised = 1 + (km > 350).astype(int) + (km > 900) + 2 * (rng.random(n_rows) < 0.3)
        odds = _log_odds(km, carrier, weather, promised, weight, category) + self.trouble_of_user[user]
        share = 1 / (1 + np.exp(-odds))
        midnight = np.datetime64(days.first, "s")
        table = pa.table(
            {
                "order_id": np.arange(first_id, first_id + n_rows),
                "ordered_at": pa.array(midnight + seconds.astype("timedelta64[s]"), pa.timestamp("s")),
                USER: self.users[user],
                "city": _named(CITIES)[city],
                "warehouse": _named(WAREHOUSES)[warehouse],
                "carrier": _named(CARRIERS)[carrier],
                "category": _named(CATEGORIES)[category],
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
    """An e-mail address; the domains are those that nobody can own."""
    domain = ("example.com", "mail.example", "example.org")[(len(first) + len(last)) % 3]
    return f"{first}.{last}@{domain}".lower()


def _of(kinds: tuple[Any, ...], field: str) -> Floats:
    return np.array([getattr(kind, field) for kind in kinds], np.float64)


def _named(kinds: tuple[Any, ...]) -> np.ndarray[Any, np.dtype[np.object_]]:
    return np.array([kind.name for kind in kinds], dtype=object)


def _roads() -> Floats:
    """Kilometres from each warehouse to each city: a quarter more than as the crow flies, and 15 at least."""
    places = [np.radians([(place.latitude, place.longitude) for place in kinds]) for kinds in (WAREHOUSES, CITIES)]
    (north, east), (north_of, east_of) = (place.T for place in places)
    half = np.sin((north[:, None] - north_of) / 2) ** 2
    half += np.cos(north)[:, None] * np.cos(north_of) * np.sin((east[:, None] - east_of) / 2) ** 2
    roads: Floats = np.maximum(15.0, 1.25 * 2 * 6371 * np.arcsin(np.sqrt(half)))
    return roads


def _carriers(km: Floats, weight: Floats, rng: np.random.Generator) -> Integers:
    """Each carrier has its market: by bicycle in town, heavy parcels by one of them, far ones by air."""
    wish = rng.gumbel(size=(km.size, len(CARRIERS))) + np.log(_of(CARRIERS, "share"))
    wish[:, 1] += 2.0 * (km < 60) - 2.5 * (km > 150)
    wish[:, 2] += 1.6 * (weight > 15)
    wish[:, 3] += 1.3 * (km > 900) - 1.5 * (weight > 15)
    chosen: Integers = wish.argmax(axis=1)
    return chosen


def _weather(city: Integers, rng: np.random.Generator) -> Integers:
    """Index into `WEATHER`: snow in the north."""
    north = _of(CITIES, "latitude")[city]
    cold, wet = (north - 47) / 6 + rng.normal(0, 1, city.size), rng.normal(0, 1, city.size)
    return np.select([(cold > 1.1) & (wet > 0), wet > 1.4, wet > 0.2], [3, 2, 1], 0)


def _log_odds(
    km: Floats, carrier: Integers, weather: Integers, promised: Integers, weight: Floats, category: Integers
) -> Floats:
    """Log odds of being late: thresholds of numbers, and combinations of columns."""
    odds = -3.4 + _of(CARRIERS, "trouble")[carrier] + _of(CATEGORIES, "trouble")[category]
    odds += np.array([0.0, 0.3, 0.8, 1.5])[weather]
    odds += 0.9 * (km > 400) + 0.8 * (km > 1000) + 1.6 * ((promised <= 2) & (km > 700))
    odds += 1.4 * ((weather == 3) & (carrier == 1)) + 1.1 * ((weather == 2) & (carrier == 3))
    odds += 1.2 * ((weight > 20) & (carrier != 2)) - 0.7 * (promised >= 4)
    log_odds: Floats = odds
    return log_odds


def write_orders(directory: Path, n_rows: int, seed: int) -> Orders:
    """Five weeks of orders, the day after them, and the rest of that week, chunk by chunk.

    Parameters
    ----------
    directory : Path
    n_rows : int
        Of the five weeks together.
    seed : int
    """
    shop = Shop.opened(seed)
    directory.mkdir(parents=True, exist_ok=True)
    n_bytes, paths, ends = 0, [], [week * n_rows // N_FILES for week in range(N_FILES + 1)]
    for week, (begin, end) in enumerate(pairwise(ends)):
        paths.append(directory / f"week-{week + 1}.parquet")
        days = Days(FIRST_WEEK + dt.timedelta(7 * week), 7, seed)
        n_bytes += sum(table.nbytes for table, _ in _written(shop, paths[-1], days, end - begin, begin + 1))
    n_tomorrow, n_test = max(n_rows // 25, 500), max(n_rows // 10, 1000)
    monday = FIRST_WEEK + dt.timedelta(7 * N_FILES)
    tomorrow, test = directory / "tomorrow.parquet", directory / "later.parquet"
    for _ in _written(shop, tomorrow, Days(monday, 1, seed), n_tomorrow, n_rows + 1):
        pass
    later = Days(monday + dt.timedelta(1), 6, seed)
    shares = [share for _, share in _written(shop, test, later, n_test, n_rows + n_tomorrow + 1)]
    return Orders(tuple(paths), tomorrow, test, n_rows, n_tomorrow, n_test, n_bytes, np.concatenate(shares))


def _written(shop: Shop, path: Path, days: Days, n_rows: int, first_id: int) -> Iterator[tuple[pa.Table, Floats]]:
    """Write orders to a file, and yield each chunk after it was written."""
    starts = [*range(0, n_rows, CHUNK_ROWS), n_rows]
    with pq.ParquetWriter(path, shop.orders(days, 0, 1, 1, first_id)[0].schema, compression="zstd") as writer:
        for begin, end in pairwise(starts):
            table, share = shop.orders(days, begin / n_rows, end / n_rows, end - begin, first_id + begin)
            writer.write_table(table)
            yield table, share
