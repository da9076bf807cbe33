"""BGe and BDeu scores against their definitions, priors, and candidates."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.orders.scores.bdeu_bge import BDeu, BGePrior, TooManyCombinations
from learners.orders.scores.candidates import greedy_candidate_parents
from learners.orders.scores.scores import StructurePrior
from tests.naive import orders as naive
from tests.naive.orders import naive_bdeu
from tests.orders.problems import Rows, bge_of, family_scores, gaussian_table, log_fair, naive_bge, subsets


def random_codes(d, n, seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 5, d)
    codes = np.stack([rng.integers(0, size, n) for size in sizes])
    codes[-1] = np.where(rng.random(n) < 0.6, codes[0] % sizes[-1], codes[-1])
    return codes, sizes.astype(np.int64)


@settings(max_examples=20)
@given(d=st.integers(1, 5), n=st.integers(2, 40), seed=st.integers(0, 1000), alpha_mu=st.sampled_from([1.0, 0.3]))
def test_bge_is_the_ratio_of_marginal_likelihoods(d, n, seed, alpha_mu):
    x = gaussian_table(d, n, seed) + 0.5
    prior = BGePrior(alpha_mu, d + 3.5, 0.8)
    scores, log_family = family_scores(bge_of(x, prior)), naive_bge(x, alpha_mu, d + 3.5, 0.8)
    for node, candidates in enumerate(scores.candidates):
        expected = [log_family(node, parents) for parents in subsets(candidates)]
        np.testing.assert_allclose(scores.of(node), expected, rtol=1e-10, atol=1e-8)


def test_bge_defaults_are_those_of_the_paper():
    assert BGePrior().resolved(7) == (9.0, 0.5)


@settings(max_examples=20)
@given(d=st.integers(1, 5), n=st.integers(1, 60), seed=st.integers(0, 1000), ess=st.sampled_from([0.5, 1.0, 10.0]))
def test_bdeu_is_the_sum_over_cells(d, n, seed, ess):
    codes, sizes = random_codes(d, n, seed)
    scores, log_family = family_scores(BDeu(Rows(codes), sizes, ess)), naive_bdeu(codes, sizes, ess)
    for node, candidates in enumerate(scores.candidates):
        expected = [log_family(node, parents) for parents in subsets(candidates)]
        np.testing.assert_allclose(scores.of(node), expected, rtol=1e-10, atol=1e-9)


def test_bdeu_of_many_combinations_and_of_blocks_is_the_same(monkeypatch):
    codes, sizes = random_codes(6, 20_000, 5)
    rows = Rows(codes)
    whole = family_scores(BDeu(rows, sizes, 1.0))

    class Blocks(Rows):
        is_in_memory = False

        def blocks(self):
            yield self.x[:, :100], self.counts[:100]
            yield self.x[:, 100:], self.counts[100:]

    np.testing.assert_allclose(family_scores(BDeu(Blocks(codes), sizes, 1.0)).logs, whole.logs, rtol=1e-12)
    monkeypatch.setattr("learners.orders.scores.bdeu_bge.DENSE_CELLS", 8)
    monkeypatch.setattr("learners.orders.scores.bdeu_bge.TABLE_CELLS", 8)
    np.testing.assert_allclose(family_scores(BDeu(rows, sizes, 1.0)).logs, whole.logs, rtol=1e-12)
    with pytest.raises(
        TooManyCombinations,
        match=r"combinations of values, and the distinct rows do not fit into memory. Lower max_parents",
    ):
        family_scores(BDeu(Blocks(codes), sizes, 1.0))


def test_equivalent_graphs_have_equal_scores():
    x, (codes, sizes) = gaussian_table(4, 50, 1), random_codes(4, 80, 2)
    chain, reverse, fork = ((), (0,), (1,), (2,)), ((1,), (2,), (3,), ()), ((1,), (), (1,), (2,))
    for score in (bge_of(x), BDeu(Rows(codes), sizes, 2.0)):
        scores = family_scores(score, StructurePrior())
        assert scores.log_score(reverse) == pytest.approx(scores.log_score(chain), abs=1e-9)
        scores = family_scores(score)
        assert scores.log_score(fork) == pytest.approx(scores.log_score(chain), abs=1e-9)


def test_most_parents_makes_larger_sets_impossible():
    x, (codes, sizes) = gaussian_table(5, 30, 3), random_codes(5, 40, 4)
    for score in (bge_of(x), BDeu(Rows(codes), sizes, 1.0)):
        whole, most_two = family_scores(score), family_scores(score, most=2)
        n_parents = np.bitwise_count(np.tile(np.arange(16, dtype=np.uint64), 5))
        np.testing.assert_array_equal(most_two.logs, np.where(n_parents <= 2, whole.logs, -np.inf))


@pytest.mark.parametrize("most_candidates", [1, 2, 3])
def test_greedy_candidates_are_those_of_the_best_sets(most_candidates):
    d = 6
    x = gaussian_table(d, 60, 7)
    prior = StructurePrior("fair", frozenset({(2, 1)}), frozenset({(3, 1)}))
    found = greedy_candidate_parents(bge_of(x), prior, most_candidates, d - 1)
    log_family = naive_bge(x)
    for node in range(d):
        chosen = [2] if node == 1 else []
        allowed = [other for other in range(d) if other != node and (other, node) != (3, 1)]
        while len(chosen) < most_candidates:
            best = {
                other: max(
                    log_family(node, (*within, other)) + log_fair(d, len(within) + 1) for within in subsets(chosen)
                )
                for other in allowed
                if other not in chosen
            }
            chosen.append(max(best, key=best.get))
        assert found[node].tolist() == sorted(chosen)


def test_greedy_candidates_of_nominal_columns_hold_the_parents():
    rng = np.random.default_rng(8)
    parents = rng.integers(0, 2, (2, 500))
    others = rng.integers(0, 3, (5, 500))
    codes = np.vstack([others, parents, parents[0] ^ parents[1]])
    score = BDeu(Rows(codes), np.array([3] * 5 + [2] * 3), 1.0)
    found = greedy_candidate_parents(score, StructurePrior(), 2, 3)
    assert found[7].tolist() == [5, 6]
    assert naive.n_orders(((), (0,), (0,))) == 2
