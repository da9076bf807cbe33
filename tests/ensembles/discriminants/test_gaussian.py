"""Scores of Gaussian discriminants, beside the densities of another library."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.ensembles.discriminants.gaussian import (
    PREFIX,
    Discriminant,
    check_discriminant,
    discriminant_from_arrays,
)
from learners.errors import InvalidArray
from learners.schema import Schema
from learners.schema.schema import Attribute
from tests.naive import ensembles as naive

SIZES = np.array([3, 4, 2, 6], np.int64)


def discriminant_of(seed, columns=(0, 1, 3), n_classes=3, bound=3.0):
    rng = np.random.default_rng(seed)
    m, sizes = len(columns), SIZES[list(columns)]
    roots = rng.normal(size=(n_classes, m, m))
    covariances = roots @ roots.transpose(0, 2, 1) + 0.1 * np.eye(m)
    return Discriminant(
        np.array(columns, np.int64),
        np.concatenate([[0], np.cumsum(sizes)]),
        rng.normal(size=sizes.sum()),
        np.log(rng.dirichlet(np.ones(n_classes))),
        rng.normal(size=(n_classes, m)),
        (covariances + covariances.transpose(0, 2, 1)) / 2,
        np.array([0.7]),
        np.array([bound]),
    )


def codes_of(seed, n, absent):
    """Codes of four attributes, some of them absent."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, SIZES[:, np.newaxis], (4, n))
    return np.where(rng.random((4, n)) < absent, SIZES[:, np.newaxis], x).astype(np.uint8)


def scores_of(discriminant, x):
    out = np.zeros((x.shape[1], discriminant.log_shares.size))
    discriminant.add_scores(x, out)
    return out


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**31),
    columns=st.sets(st.integers(0, 3), min_size=1),
    n_classes=st.integers(1, 4),
    n=st.integers(0, 12),
    absent=st.sampled_from((0.0, 0.3, 1.0)),
    bound=st.sampled_from((0.1, 3.0, 1e300)),
)
def test_scores_are_weighted_marginal_densities(seed, columns, n_classes, n, absent, bound):
    discriminant = discriminant_of(seed, tuple(sorted(columns)), n_classes, bound)
    x = codes_of(seed, n, absent)
    assert scores_of(discriminant, x) == pytest.approx(naive.discriminant_scores(discriminant, x), rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("absent", [0.0, 0.3])
def test_a_row_is_answered_alike_whatever_rows_are_beside_it(absent, monkeypatch):
    discriminant, x = discriminant_of(1), codes_of(2, 200, absent)
    together = scores_of(discriminant, x)
    alone = np.concatenate([scores_of(discriminant, x[:, i : i + 1]) for i in range(200)])
    assert np.array_equal(together, alone)
    monkeypatch.setattr("learners.ensembles.discriminants.gaussian.BLOCK_NUMBERS", 64)
    assert np.array_equal(together, scores_of(discriminant, x))


@pytest.mark.parametrize("absent", [0.0, 0.3])
def test_terms_add_up_to_the_scores(absent):
    discriminant, x = discriminant_of(3), codes_of(4, 50, absent)
    of_classes, terms = discriminant.log_terms(x, 4)
    assert terms.shape == (4, 50, 3) and not terms[2].any()
    assert of_classes + terms.sum(axis=0) == pytest.approx(scores_of(discriminant, x))
    assert not terms[(x == SIZES[:, np.newaxis])].any()


def test_arrays_come_back():
    discriminant = discriminant_of(5)
    again = discriminant_from_arrays(discriminant.to_arrays())
    assert discriminant_from_arrays({}) is None
    for name, array in vars(discriminant).items():
        assert np.array_equal(array, vars(again)[name]), name
    x = codes_of(6, 10, 0.2)
    assert np.array_equal(scores_of(pickle.loads(pickle.dumps(discriminant)), x), scores_of(again, x))
    assert scores_of(discriminant.scaled(2.0), x) == pytest.approx(2.0 * scores_of(again, x))


def schema_of():
    attributes = tuple(Attribute(f"a{i}", "numeric", cuts=tuple(range(size - 1))) for i, size in enumerate(SIZES))
    return Schema(attributes, "class", ("a", "b", "c"), "string")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("columns", lambda a: a[::-1], "names no attribute, or not in ascending order"),
        ("columns", lambda a: a + 1, "names no attribute"),
        ("starts", lambda a: a - 1, "must ascend from zero"),
        ("scores", lambda a: a[:-1], "of shape"),
        ("scores", lambda a: np.full_like(a, np.nan), "is not finite"),
        ("means", lambda a: a.astype(np.float32), "float32"),
        ("covariances", lambda a: -a, "is not positive definite for class 0"),
        ("covariances", lambda a: a + np.triu(np.ones(3), 1), "is not positive definite for class 0"),
        ("weight", lambda a: np.append(a, 1.0), "of shape"),
        ("bound", lambda a: -a, "is not positive"),
    ],
)
def test_arrays_that_are_no_discriminant_are_refused(name, change, message):
    discriminant = discriminant_of(7)
    check_discriminant(schema_of(), discriminant.to_arrays())
    arrays = discriminant.to_arrays()
    arrays[PREFIX + name] = np.ascontiguousarray(change(arrays[PREFIX + name]))
    with pytest.raises(InvalidArray, match=message):
        check_discriminant(schema_of(), arrays)


def test_an_array_that_is_missing_is_named():
    arrays = replace(discriminant_of(8)).to_arrays()
    del arrays[PREFIX + "means"]
    with pytest.raises(InvalidArray, match="gaussian_means"):
        check_discriminant(schema_of(), arrays)
