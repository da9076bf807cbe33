"""Networks and tables with many classes."""

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from learners.classifiers.structure import (
    Structure,
)
from learners.schema import Chunk
from tests import strategies


@st.composite
def networks(draw, unseen):
    """(schema, structure, training chunk, chunk to ask about); with unseen codes if so wished."""
    wide = draw(st.booleans())
    schema = draw(strategies.schemas(wide, max_attributes=4))
    training = strategies.chunk_of(draw(st.integers(0, 9999)), schema, draw(st.sampled_from([1, 5, 40, 300])), 2.0)
    order = tuple(draw(st.permutations(range(schema.n_attributes))))
    parents = tuple(
        tuple(draw(st.lists(st.sampled_from(order[:r]), unique=True, max_size=3))) if r else ()
        for r in range(len(order))
    )
    asked = strategies.chunk_of(draw(st.integers(0, 9999)), schema, 12, 2.0)
    if unseen:
        absent = np.random.default_rng(draw(st.integers(0, 99))).random(asked.x.shape) < 0.3
        x = np.where(absent, schema.domain_sizes[:, np.newaxis], asked.x).astype(schema.code_dtype)
        asked = Chunk(x, asked.y)
    return schema, Structure(order, parents), training, asked


def table(n_rows, n_classes, seed=0):
    """Two texts and a number that together tell most classes apart; every class has two rows at least."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(n_classes)] * 2 + [rng.integers(0, n_classes, n_rows - 2 * n_classes)])
    rng.shuffle(y)
    is_noise = rng.random(n_rows) < 0.05
    place = np.where(is_noise, rng.integers(0, 100, n_rows), y % 100)
    return pa.table(
        {
            "shelf": [f"s{a}" for a in y // 100],
            "place": [f"p{a}" for a in place],
            "weight": y % 7 + rng.normal(0, 0.1, n_rows),
            "article": pa.array(y * 10),
        }
    )
