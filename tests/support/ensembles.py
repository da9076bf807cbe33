"""Members, tables and trained ensembles."""

import json
from functools import cache

import numpy as np
import pyarrow as pa

from learners import Source, collect, drive, encode
from learners.classifiers.structure import Structure
from learners.counts.family_counts import Family
from learners.ensembles.cuts import ensemble_schema
from learners.ensembles.members import Member
from learners.passes.column_summaries import ColumnSummaries
from learners.registry import recipes
from tests.support.passes import OVERRIDES

SIZES = [4, 3, 3, 2]


def member(order):
    """Each attribute of the order has all before it as its parents."""
    parents = tuple(tuple(order[:rank]) for rank in range(len(order)))
    families = tuple(Family(own, above) for own, above in zip(order, parents, strict=True))
    return Member(Structure(tuple(order), parents), families)


def table_of(n, seed=0, classes=("no", "yes")):
    """A class that depends on two numbers together and on a word; some numbers are missing."""
    rng = np.random.default_rng(seed)
    a, b, noise = rng.normal(size=(3, n))
    word = rng.choice(["red", "green", "blue"], n)
    label = ((a > 0) ^ (b > 0.3)).astype(int) + (word == "red") * (rng.random(n) < 0.4)
    number = pa.array(np.where(rng.random(n) < 0.1, np.nan, noise), from_pandas=True)
    y = np.array(classes)[np.minimum(label, len(classes) - 1)]
    return pa.table({"a": a, "b": b, "noise": number, "word": word, "class": y})


def same_arrays(one, other):
    (h1, a1), (h2, a2) = one.to_arrays(), other.to_arrays()
    assert json.dumps(h1, sort_keys=True) == json.dumps(h2, sort_keys=True)
    assert a1.keys() == a2.keys()
    for name in a1:
        assert np.array_equal(a1[name], a2[name], equal_nan=a1[name].dtype.kind == "f"), name


N_ROWS = 600
MEMBERS = 2


def table(n_classes):
    """Two numbers that matter together, a third, and a word; each class more than once."""
    rng = np.random.default_rng(0)
    a, b, c = rng.normal(size=(3, N_ROWS))
    word = rng.choice(["red", "green", "blue"], N_ROWS)
    label = ((a > 0) ^ (b > 0.3)) + 2 * (word == "red")
    y = (label % n_classes if n_classes < 10 else np.arange(N_ROWS) % n_classes).astype(int)
    return pa.table({"a": a, "b": b, "c": c, "word": word, "class": np.char.mod("c%03d", y)})


@cache
def trained(learner, n_classes):
    """A model of two members by a schema with cut points for many, and the rows it has learned."""
    rows = table(n_classes)
    source = Source.of_table(rows)
    schema = ensemble_schema(collect(ColumnSummaries("class"), source), 40, 0)
    assert max(len(attribute.cuts) for attribute in schema.attributes) > 255
    model = drive(recipes.learner(learner, {"members": MEMBERS}, "class", schema), source)
    y = np.searchsorted(schema.classes, rows["class"].to_pylist())
    return model, encode(rows, schema).x, y


PARAMETERS = {"members": 2}


@cache
def schema_of(folder):
    """Cut points for more members than are learned: it is these that need two bytes, not the time of many members."""
    schema = ensemble_schema(collect(ColumnSummaries("class", OVERRIDES), Source.open(folder)), 40, 0)
    assert max(len(attribute.cuts) for attribute in schema.attributes) > 255
    return schema


def fresh(name, kept):
    return recipes.learner(name, PARAMETERS, "class", kept, OVERRIDES)
