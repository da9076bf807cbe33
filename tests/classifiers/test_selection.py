import numpy as np
import pyarrow as pa
import pytest

from learners import Source, collect, drive
from learners.classifiers.estimates.context_tree import iterate_tree_levels
from learners.classifiers.selection import PrefixLosses, selection_loss_tables
from learners.classifiers.selection_kernels import ONE
from learners.classifiers.structure import Structure, k_dependence_structure
from learners.counts.family_counts import FamilyCounts
from learners.counts.pairwise import PairwiseCounts
from learners.errors import EmptyStatistic, InvalidParameter, StatisticMismatch
from learners.registry import recipes
from learners.schema import Attribute, Chunk, Schema
from tests.naive.selection import prefix_losses


def schema_of(sizes, n_classes):
    attributes = tuple(
        Attribute(f"a{i}", "nominal", tuple(str(v) for v in range(size))) for i, size in enumerate(sizes)
    )
    return Schema(attributes, "class", tuple(f"c{k}" for k in range(n_classes)))


def chunk_of(rng, sizes, n_classes, n_rows):
    y = rng.integers(0, n_classes, n_rows).astype(np.uint8)
    x = np.stack([(rng.integers(0, size, n_rows) * (rng.random(n_rows) < 0.7) + y) % size for size in sizes])
    return Chunk(np.ascontiguousarray(x.astype(np.uint8)), y)


def measured(schema, chunk, k, loss="squared", mixes=True):
    pairs = PairwiseCounts(schema)
    pairs.update(chunk)
    structure = k_dependence_structure(pairs, k)
    families = FamilyCounts(schema, structure.families())
    families.update(chunk)
    of = selection_loss_tables(schema, structure, iterate_tree_levels(families), families.class_counts, mixes)
    losses = PrefixLosses(schema, of, families.class_counts, loss)
    losses.update(chunk)
    return structure, losses


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("loss", ["squared", "zero-one"])
@pytest.mark.parametrize(("dense", "mixes"), [(True, True), (False, True), (False, False)])
def test_losses_equal_counting_all_other_rows(n_classes, loss, dense, mixes, monkeypatch):
    if not dense:
        monkeypatch.setattr("learners.classifiers.selection.DENSE_ROWS", 0)
    sizes = [2, 3, 4, 2, 5]
    chunk = chunk_of(np.random.default_rng(n_classes), sizes, n_classes, 40)
    structure, losses = measured(schema_of(sizes, n_classes), chunk, 3, loss, mixes)
    naive = prefix_losses(chunk.x, chunk.y, sizes, n_classes, structure, loss == "zero-one", mixes)
    # In 0-1 loss the order of float32 sums may break a tie another way.
    tolerance = 1.01 if loss == "zero-one" else 1e-4
    assert np.abs(losses.losses / float(ONE) - naive).max() <= tolerance


def test_a_class_of_a_single_row_is_measured_without_it():
    schema = schema_of([2, 2], 2)
    chunk = Chunk(np.array([[0, 1, 1, 0], [0, 0, 1, 1]], np.uint8), np.array([0, 1, 1, 1], np.uint8))
    structure, losses = measured(schema, chunk, 1)
    naive = prefix_losses(chunk.x, chunk.y, [2, 2], 2, structure)
    assert np.allclose(losses.losses / float(ONE), naive, atol=1e-5)


def test_any_partition_gives_the_same_sums_and_arrow_gives_them_back():
    schema = schema_of([3, 4, 2], 3)
    chunk = chunk_of(np.random.default_rng(1), [3, 4, 2], 3, 500)
    _, whole = measured(schema, chunk, 2)
    parts = whole.empty()
    for index in (slice(300, 500), slice(0, 7), slice(7, 300)):
        part = whole.empty()
        part.update(chunk.rows(index))
        parts.merge(part)
    assert parts == whole
    assert whole.empty().from_arrow(whole.to_arrow()) == whole
    with pytest.raises(EmptyStatistic, match="No rows were measured"):
        whole.empty().best()


def test_losses_of_other_estimates_cannot_be_added():
    schema = schema_of([3, 4, 2], 3)
    chunk = chunk_of(np.random.default_rng(1), [3, 4, 2], 3, 50)
    (_, ours), (_, others) = (measured(schema, chunk, 2, mixes=mixes) for mixes in (True, False))
    with pytest.raises(StatisticMismatch, match="different schemas or specifications"):
        ours.merge(others)


def test_of_equal_losses_the_smallest_model_wins():
    schema = schema_of([2, 2, 2], 2)
    chunk = Chunk(np.zeros((3, 40), np.uint8), np.tile(np.array([0, 1], np.uint8), 20))
    structure = Structure((0, 1, 2), ((), (0,), (0, 1)))
    families = FamilyCounts(schema, structure.families())
    families.update(chunk)
    of = selection_loss_tables(schema, structure, iterate_tree_levels(families), families.class_counts)
    losses = PrefixLosses(schema, of, families.class_counts)
    losses.update(chunk)
    best = losses.best()
    assert best.k == 0
    assert losses.losses[best.k, best.n_attributes] == losses.losses.min()


def test_skdb_keeps_what_helps_and_stores_the_whole_surface():
    rng = np.random.default_rng(0)
    n = 4000
    y = rng.integers(0, 2, n)
    a = rng.integers(0, 2, n)
    table = pa.table(
        {
            "a": a.astype(str),
            "b": (a ^ y).astype(str),
            "noise": rng.integers(0, 30, n).astype(str),
            "class": y.astype(str),
        }
    )
    model = drive(recipes.learner("skdb", {"k": 3, "estimator": "m"}, "class"), Source.of_table(table))
    selection = model.facts["selection"]
    surface = np.array(selection["mean_loss"])
    assert surface.shape == (3, 4)  # three attributes have at most two parents
    assert surface[selection["k"], selection["n_attributes"]] == surface.min()
    assert selection["k"] == 1
    names = [model.schema.attributes[i].name for i in model.network.order]
    assert {"a", "b"} <= set(names)
    assert len(model.network.order) == selection["n_attributes"]


def test_its_parameters_are_checked():
    with pytest.raises(InvalidParameter, match="loss"):
        recipes.parse_learner_parameters("skdb", {"loss": "log"})


def test_reduced_counts_equal_counting_the_shorter_families():
    sizes = [3, 4, 2, 5]
    schema = schema_of(sizes, 3)
    chunk = chunk_of(np.random.default_rng(2), sizes, 3, 700)
    structure = Structure((0, 1, 2, 3), ((), (0,), (1, 0), (0, 2, 1)))
    whole = FamilyCounts(schema, structure.families())
    whole.update(chunk)
    for n, k in ((4, 1), (3, 0), (4, 2)):
        shorter = structure.prefix(n, k)
        direct = FamilyCounts(schema, shorter.families())
        direct.update(chunk)
        assert whole.only(shorter.families()) == direct


def test_threads_do_not_change_the_losses():
    schema = schema_of([3, 4, 2], 2)
    chunk = chunk_of(np.random.default_rng(5), [3, 4, 2], 2, 90_000)
    table = pa.table(
        {f"a{i}": codes.astype(str) for i, codes in enumerate(chunk.x)} | {"class": [f"c{k}" for k in chunk.y]}
    )
    _, losses = measured(schema, chunk, 2)
    source = Source.of_table(table)
    assert collect(losses.empty(), source, threads=1) == collect(losses.empty(), source, threads=3) == losses
