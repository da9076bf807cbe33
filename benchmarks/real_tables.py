"""A table as people have them: orders of a retail chain.

Forty columns beside the class: a `shop` of 5,000 values, twenty skewed texts of 2 to 200 values, seven small integers, four booleans, seven
floats of which five have nulls, and a date. The class (`outcome`, at 70, 20, 8 and 2 %) follows from thresholds and interactions of
the numbers and from the shop, which no Bayesian network generates. The texts follow from the class and from one another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

Array = np.ndarray[Any, np.dtype[Any]]
Columns = dict[str, Array]

TARGET = "outcome"
CLASSES = ("kept", "returned", "disputed", "fraud")
SHARES = (0.70, 0.20, 0.08, 0.02)
N_SHOPS, N_DAYS, FIRST_DAY = 5000, 1096, 19_358  # the first of January 2023
PILOT_ROWS = 200_000


@dataclass(frozen=True)
class Text:
    """A column of words, drawn given other columns and the class.

    Parameters
    ----------
    name : str
    n_values : int
    parents : tuple of str
        The columns that it follows, two at most.
    strength : float
        How much the parents say, as a standard deviation of logits.
    tell : float
        How much the class says, likewise; half of the variance differs from one combination of the parents to another.
    skew : float
        Exponent of the power law of its frequencies.
    """

    name: str
    n_values: int
    parents: tuple[str, ...] = ()
    strength: float = 1.5
    tell: float = 0.6
    skew: float = 1.1


TEXTS = (
    Text("region", 24, ("shop",)),
    Text("format", 5, ("shop",)),
    Text("country", 9, ("region",), 4.0, 0.0),
    Text("warehouse", 40, ("region",), 3.0, 0.2),
    Text("currency", 8, ("country",), 4.0, 0.2),
    Text("language", 18, ("country",), 3.0, 0.2),
    Text("department", 16, (), 0.0, 1.0, 0.7),
    Text("category", 80, ("department",), 3.0, 0.8),
    Text("segment", 20, (), 0.0, 1.2, 0.8),
    Text("tier", 4, ("segment",), 1.5, 0.8),
    Text("brand", 200, ("category", "tier"), 2.0, 0.8),
    Text("supplier", 150, ("brand",), 2.5, 0.4),
    Text("packaging", 2, ("department",), 1.0, 0.6),
    Text("carrier", 12, ("country", "packaging"), 1.5, 0.9),
    Text("channel", 4, ("segment",), 1.0, 1.0),
    Text("device", 14, ("channel",), 2.0, 0.8),
    Text("browser", 30, ("device",), 2.0, 0.6),
    Text("campaign", 120, ("channel", "department"), 1.5, 0.8),
    Text("payment", 7, ("country", "tier"), 1.0, 1.4),
    Text("card", 5, ("payment", "format"), 2.0, 0.8),
)
# Rows whose region or format is not that of their shop.
STRAY = 0.02


class Alias(NamedTuple):
    """Tables for drawing from many distributions over v values, one step a draw (Walker 1977, Vose 1991)."""

    keep: Array  # (n, v) float32: the probability of staying
    other: Array  # (n, v) int16: where to go instead

    @classmethod
    def of(cls, probabilities: Array) -> Alias:
        """Of (n, v) probabilities."""
        n, v = probabilities.shape
        keep, other = np.ones((n, v), np.float32), np.tile(np.arange(v, dtype=np.int16), (n, 1))
        for row in range(n):
            mass = probabilities[row] * v
            low, high = (list(np.flatnonzero(part)) for part in (mass < 1, mass >= 1))
            while low and high:
                small, large = low.pop(), high[-1]
                keep[row, small], other[row, small] = mass[small], large
                mass[large] -= 1 - mass[small]
                if mass[large] < 1:
                    low.append(high.pop())
        return cls(keep, other)

    def draw(self, rows: Array, rng: np.random.Generator) -> Array:
        """A value for each (n,) distribution number."""
        value = rng.integers(0, self.keep.shape[1], rows.size, np.int16)
        stays = rng.random(rows.size, np.float32) < self.keep[rows, value]
        return np.where(stays, value, self.other[rows, value])


def _zipf(n_values: int, skew: float) -> Array:
    return -skew * np.log(np.arange(1, n_values + 1) + 1.5)


def _softmax(logits: Array) -> Array:
    shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)


class Truth(NamedTuple):
    """What the table is drawn from.

    Parameters
    ----------
    shop_share : (1, 5000) alias tables
    region_of_shop, format_of_shop : (5000,)
    shop_effect : (5000, 4) on the scores of the classes
    texts : alias tables of every text but region and format, (values of the parents × class, value)
    offsets : (4,) added to the scores, for the classes to have their shares
    """

    shop_share: Alias
    region_of_shop: Array
    format_of_shop: Array
    shop_effect: Array
    texts: dict[str, Alias]
    offsets: Array


@cache
def truth() -> Truth:
    """The one truth of all tables: only the rows differ."""
    rng = np.random.default_rng(20240)
    n_classes = len(CLASSES)
    sizes = {text.name: text.n_values for text in TEXTS}
    texts = {
        text.name: Alias.of(_softmax(_logits(text, [sizes[p] for p in text.parents], rng)).reshape(-1, text.n_values))
        for text in TEXTS
        if text.parents != ("shop",)
    }
    shares = _softmax(_zipf(N_SHOPS, 0.8))[np.newaxis]
    regions = rng.choice(sizes["region"], N_SHOPS, p=_softmax(_zipf(sizes["region"], 0.8)))
    formats = rng.choice(sizes["format"], N_SHOPS, p=_softmax(_zipf(sizes["format"], 0.8)))
    effect = rng.normal(0, 1.5, (N_SHOPS, n_classes))
    uncalibrated = Truth(Alias.of(shares), regions, formats, effect, texts, np.zeros(n_classes))
    return uncalibrated._replace(offsets=_offsets(uncalibrated))


def _logits(text: Text, parent_sizes: list[int], rng: np.random.Generator) -> Array:
    """(values of the parents…, class, value): what each parent says, what both say together, and the class."""
    whole = (*parent_sizes, len(CLASSES), text.n_values)
    logits = np.broadcast_to(_zipf(text.n_values, text.skew), whole).copy()
    for axis, size in enumerate(parent_sizes):
        shape = [1] * len(whole)
        shape[axis], shape[-1] = size, text.n_values
        logits += text.strength * rng.normal(size=shape)
    if len(parent_sizes) > 1:
        logits += text.strength / 2 * rng.normal(size=(*parent_sizes, 1, text.n_values))
    logits += text.tell * np.sqrt(0.5) * rng.normal(size=whole[-2:])
    return logits + text.tell * np.sqrt(0.5) * rng.normal(size=whole)


def _offsets(uncalibrated: Truth) -> Array:
    """What to add to the scores for the classes to have their shares, by iteration on pilot rows."""
    rng = np.random.default_rng(20241)
    scores = _scores(uncalibrated, _numbers(uncalibrated, PILOT_ROWS, rng))
    offsets = np.zeros(len(CLASSES))
    for _ in range(200):
        offsets += np.log(SHARES) - np.log(_softmax(scores + offsets).mean(axis=0))
    return offsets


def _numbers(drawn_from: Truth, n: int, rng: np.random.Generator) -> Columns:
    """The columns before the class: shop, numbers, booleans and the day."""
    shop = drawn_from.shop_share.draw(np.zeros(n, np.int64), rng)
    # Numbers depend on one another through what nobody recorded: how rich, how far, how often.
    wealth, remote, habit = rng.normal(size=(3, n))
    age = np.clip(44 + 14 * rng.normal(size=n) + 5 * wealth, 18, 95).astype(np.int16)
    n_items = np.clip(rng.poisson(np.exp(0.9 + 0.35 * habit)), 0, 23).astype(np.int8) + np.int8(1)
    amount = np.round(np.exp(3.4 + 0.6 * wealth + 0.5 * np.log(n_items) + 0.5 * rng.normal(size=n)), 1)
    distance = np.round(np.exp(2.2 + 0.9 * remote + 0.4 * rng.normal(size=n)), 0)
    days = np.clip(1 + rng.poisson(1 + np.sqrt(distance)), 1, 45).astype(np.int16)
    visits = np.clip(np.exp(2 + 0.9 * habit + 0.4 * rng.normal(size=n)), 0, 400).astype(np.int16)
    member = rng.random(n) < 1 / (1 + np.exp(-habit))
    return {
        "shop": shop,
        "age": age,
        "n_items": n_items,
        "n_visits": visits,
        "n_returns": np.clip(rng.poisson(np.exp(-1.2 + 0.6 * habit)), 0, 9).astype(np.int8),
        "installments": rng.choice(np.array([1, 2, 3, 4, 6, 10, 12], np.int8), n, p=[0.6, 0.1, 0.1, 0.05, 0.08, 0.03, 0.04]),
        "hour": np.clip(np.round(14 + 4.5 * rng.normal(size=n)), 0, 23).astype(np.int8),
        "delivery_days": days,
        "is_member": member,
        "is_gift": rng.random(n) < 0.08,
        "is_new": visits < 3,
        "has_coupon": rng.random(n) < np.where(member, 0.35, 0.12),
        "amount": amount,
        "discount": np.round(rng.beta(1.2, 5, n) * np.where(member, 1.2, 0.8), 2),
        "distance_km": distance,
        "weight_kg": np.round(np.exp(-0.3 + 0.8 * np.log(n_items) + 0.5 * rng.normal(size=n)), 1),
        "balance": np.round(400 * wealth + 250 * rng.normal(size=n) + 150, -1),
        "margin": amount * (0.25 + 0.08 * rng.normal(size=n)),
        "day": rng.integers(0, N_DAYS, n),
    }  # fmt: skip


def _scores(drawn_from: Truth, numbers: Columns) -> Array:
    """(n, 4) log shares of the classes, not normalised: thresholds, products and seasons."""
    c = {name: column.astype(np.float64) for name, column in numbers.items()}
    season = np.sin(2 * np.pi * c["day"] / 365.25)
    weekend = (c["day"] + FIRST_DAY + 3) % 7 >= 5
    returned = 2.2 * (c["n_items"] * c["discount"] > 0.7) + 1.8 * ((c["amount"] > 90) ^ (c["weight_kg"] < 1.2))
    returned += 1.2 * season * np.where(c["is_gift"], -1, 1) + 1.5 * (c["n_returns"] > 1) * (c["age"] < 45)
    disputed = 2.6 * (c["distance_km"] > 25) * (c["delivery_days"] > 6) + 2.0 * (c["balance"] < 0) * (
        c["installments"] > 2
    )
    disputed += 1.5 * ((c["hour"] > 19) ^ weekend)
    fraud = 3.0 * (c["margin"] > 30) * (c["n_visits"] < 6) + 2.5 * (c["age"] < 30) * (c["hour"] < 9)
    fraud += 2.0 * (c["amount"] * c["distance_km"] > 2500) * (1 - c["is_member"])
    scores = np.stack([np.zeros_like(returned), returned, disputed, fraud], axis=1)
    return scores * 1.3 + drawn_from.shop_effect[numbers["shop"]] + drawn_from.offsets


def draw(n: int, rng: np.random.Generator) -> tuple[Columns, Array]:
    """Columns of n rows as numbers or codes, and their classes."""
    drawn_from, sizes = truth(), {text.name: text.n_values for text in TEXTS}
    columns = _numbers(drawn_from, n, rng)
    y = np.argmax(_scores(drawn_from, columns) + rng.gumbel(size=(n, len(CLASSES))), axis=1)
    for text in TEXTS:
        if text.parents == ("shop",):
            of_shop = drawn_from.region_of_shop if text.name == "region" else drawn_from.format_of_shop
            strays = rng.random(n) < STRAY
            columns[text.name] = np.where(strays, rng.integers(0, text.n_values, n), of_shop[columns["shop"]])
            continue
        context = np.zeros(n, np.int64)
        for parent in text.parents:
            context = context * sizes[parent] + columns[parent]
        columns[text.name] = drawn_from.texts[text.name].draw(context * len(CLASSES) + y, rng)
    columns["rating"] = np.clip(np.round(2 * (4.2 - 0.7 * (y > 0) + 0.8 * rng.normal(size=n))) / 2, 1, 5)
    return columns, y


NULLS = {"discount": 0.2, "distance_km": 0.08, "weight_kg": 0.05, "balance": 0.3, "rating": 0.45}
HALF_NULLABLE = (
    "shop", "age", "n_visits", "hour", "has_coupon", "amount", "discount", "distance_km", "weight_kg", "balance", "day",
    "region", "department", "category", "segment", "brand", "carrier", "device", "payment", "rating",
)  # fmt: skip
MANY_NULLS = dict(zip(HALF_NULLABLE, np.linspace(0.01, 0.3, len(HALF_NULLABLE)).round(3).tolist(), strict=True))
"""Independent nulls in half of the columns, 1 to 30 % each: 19 of 20 rows have some, of thousands of patterns."""


@cache
def _words(name: str, n_values: int) -> pa.Array:
    """Different made-up words, of 5 to 14 letters, told by the name of their column."""
    rng = np.random.default_rng([20242, *name.encode()])
    syllables = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "el", "or")]
    words: dict[str, None] = {}
    while len(words) < n_values:
        words[f"{name[:2]}{''.join(rng.choice(syllables, rng.integers(2, 5)))}".capitalize()] = None
    return pa.array(list(words))


def arrow_table(n: int, rng: np.random.Generator, nulls: Mapping[str, float] = NULLS) -> pa.Table:
    """The rows as a table: texts as strings, the class last, and in some columns a share of nulls."""
    columns, y = draw(n, rng)
    sizes = {"shop": N_SHOPS} | {text.name: text.n_values for text in TEXTS}
    arrays: dict[str, pa.Array] = {}
    for name, column in columns.items():
        mask = rng.random(n) < nulls[name] if name in nulls else None
        if name in sizes:
            arrays[name] = _words(name, sizes[name]).take(pa.array(column, mask=mask))
        elif name == "day":
            arrays[name] = pa.array((column + FIRST_DAY).astype(np.int32), mask=mask).cast(pa.date32())
        else:
            arrays[name] = pa.array(column, mask=mask)
    return pa.table(arrays | {TARGET: pa.array(CLASSES).take(pa.array(y))})
