"""Which parents tell something, against predicting every row from all others."""

from math import log

import numpy as np
import pyarrow as pa
import pytest

from learners import Source, drive
from learners.classifiers.estimates.backoff import CHANCE_NATS, pruned, telling_levels
from learners.classifiers.estimates.context_tree import Levels, each_grown
from learners.classifiers.structure import Structure
from learners.counts.family_counts import Family, FamilyCounts
from learners.errors import InvalidParameter
from learners.registry import recipes
from tests import laws, strategies
from tests.naive.selection import best_weights, estimate


def levels_of(chunk, sizes, n_classes, attribute, parents):
    families = FamilyCounts(strategies.schema_of(sizes, n_classes), (Family(attribute, parents),))
    return next(each_grown(laws.updated(families, [chunk])))


def chunk_of(rng, n, follows):
    """Three columns of 3, 2 and 4 values; the last follows some of the others."""
    y = rng.integers(0, 2, n)
    a, b = rng.integers(0, 3, n), rng.integers(0, 2, n)
    told = sum({"a": a, "b": 2 * b, "y": y}[name] for name in follows)
    c = np.where(rng.random(n) < 0.8, told % 4, rng.integers(0, 4, n))
    return strategies.Chunk(np.array([a, b, c], np.uint8), y.astype(np.uint8))


@pytest.mark.parametrize("follows", ["", "y", "a", "ab", "b"])
@pytest.mark.parametrize("seed", [0, 1])
def test_telling_levels_predict_left_out_rows_best(follows, seed):
    chunk = chunk_of(np.random.default_rng(seed), 50, follows)
    x, y, parents = chunk.x, chunk.y, (0, 1)
    weights = best_weights(x, y, 2, parents, 4)
    scores = []
    for depth in range(3):
        score = 0.0
        for row in range(y.size):
            others = np.arange(y.size) != row
            given = (parents[:depth], x[list(parents[:depth]), row], 4, weights[: depth + 1])
            score += log(estimate(x[:, others], y[others], 2, x[2, row], y[row], *given))
        scores.append(score)
    assert telling_levels(levels_of(chunk, (3, 2, 4), 2, 2, parents)) == min(
        d for d in range(3) if scores[d] >= max(scores) - CHANCE_NATS
    )


def test_parents_that_tell_something_stay_and_others_go():
    chunk = chunk_of(np.random.default_rng(0), 3000, "a")
    grown = [levels_of(chunk, (3, 2, 4), 2, a, parents) for a, parents in ((0, ()), (1, ()), (2, (0, 1)))]
    structure, trees = pruned(Structure((0, 1, 2), ((), (), (0, 1))), grown)
    assert structure == Structure((0, 1, 2), ((), (), (0,)))
    counted = levels_of(chunk, (3, 2, 4), 2, 2, (0,)).tree()
    assert all(np.array_equal(ours, theirs) for ours, theirs in zip(trees[2], counted, strict=True))


@pytest.mark.parametrize(("parameters", "n_edges"), [({}, 1), ({"prune": False}, 3), ({"estimator": "m"}, 3)])
def test_a_network_loses_edges_that_tell_nothing(parameters, n_edges):
    """m-estimates do not mix contexts with shorter ones, so nothing of theirs is pruned."""
    chunk = chunk_of(np.random.default_rng(0), 3000, "ay")
    columns = {name: [f"{name}{value}" for value in codes] for name, codes in zip("abc", chunk.x, strict=True)}
    table = pa.table(columns | {"class": [f"k{label}" for label in chunk.y]})
    given = {"estimator": "hdp-map", "k": 2} | parameters
    model = drive(recipes.learner("kdb", given, "class"), Source.of_table(table))
    assert sum(map(len, model.network.parents)) == n_edges


def test_prune_is_a_boolean():
    with pytest.raises(InvalidParameter, match="prune"):
        recipes.parse_parameters("kdb", {"prune": "sometimes"})


@pytest.mark.parametrize(
    ("learner", "parameters", "estimator"),
    [
        ("nb", {}, "hdp-map"),
        ("tan", {}, "hdp-map"),
        ("kdb", {"k": 2}, "hdp-map"),
        ("skdb", {}, "hdp-map"),
        ("kdb", {"m": 1.0}, "m"),
        ("kdb", {"estimator": "m"}, "m"),
        ("tan", {"average": True}, "m"),
        ("kdb", {"estimator": "hdp"}, "hdp"),
    ],
)
def test_hdp_map_is_the_estimator_unless_another_is_named_or_m_is(learner, parameters, estimator):
    assert recipes.parse_parameters(learner, parameters).estimator == estimator


def test_a_cut_tree_holds_nothing_of_what_was_cut_off():
    chunk = chunk_of(np.random.default_rng(0), 3000, "a")
    tree = levels_of(chunk, (3, 2, 4), 2, 2, (0, 1)).tree(1)
    assert all(part.base is None for part in tree if isinstance(part, np.ndarray))
    assert {part.dtype for part in tree if isinstance(part, np.ndarray)} == {np.dtype(np.int64)}


def test_trees_are_cut_one_after_the_other():
    """So that all of them, whole, are never in memory together."""
    chunk = chunk_of(np.random.default_rng(0), 3000, "a")
    events = []

    def grown():
        for attribute in range(3):
            events.append(f"grow {attribute}")
            yield levels_of(chunk, (3, 2, 4), 2, attribute, ())

    with pytest.MonkeyPatch.context() as patch:
        laid_out = Levels.tree
        patch.setattr(Levels, "tree", lambda levels, depth: events.append("cut") or laid_out(levels, depth))
        pruned(Structure((0, 1, 2), ((), (), ())), grown())
    assert events == ["grow 0", "cut", "grow 1", "cut", "grow 2", "cut"]
