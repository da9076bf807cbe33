"""Known edges that a model's lattice or candidates do not hold: a lattice of their own, against sums over all orders."""

import numpy as np
import pytest

from learners.models.query import Edges, Effects, Graph, Paths
from learners.orders.lattice.lattice import Coverage, OrderPosterior, lattice_of_all_orders, lattice_order_sums
from learners.orders.parameters import OrderParameters
from learners.orders.queries.edges import MOST_SETS, ConditionalPosteriors, add_present_edge_candidates
from learners.orders.queries.queries import GraphQueries
from learners.orders.scores.bdeu_bge import Standard
from learners.orders.scores.known_edges import Edges as KnownEdges
from learners.orders.scores.known_edges import ImpossibleEdges
from learners.orders.scores.scores import StructurePrior
from tests.orders.problems import bge_of, family_scores, gaussian_table

NAMES = ["a", "b", "c", "d", "e"]
D = len(NAMES)
FEW = tuple(np.array([(node + 1) % D], np.int64) for node in range(D))


def chain_of_sets(order):
    """The lattice of one order."""
    return np.array(sorted({0} | {sum(1 << node for node in order[: n + 1]) for n in range(len(order))}), np.uint64)


def asked(sets, candidates=None, most=D - 1, **parameters):
    bge = bge_of(gaussian_table(D, 30, 3))
    learned = OrderParameters(draws=40, **parameters)
    scores = family_scores(bge, learned.structure_prior(NAMES), most, candidates)
    coverage = Coverage() if sets is None else Coverage(is_exact=False, n_draws=40)
    posterior = OrderPosterior(scores, sets, coverage, bge, Standard.none(D))
    return GraphQueries(posterior, NAMES, ConditionalPosteriors(posterior, learned, NAMES, most))


def probabilities(answer):
    return [each["probability"] for each in answer["edges"] if each.get("is_candidate", True)]


def test_known_edges_outside_the_lattice_have_the_answer_of_all_orders():
    one_order, all_orders = asked(chain_of_sets([0, 1, 2, 3, 4])), asked(None)
    query = Edges(present=("e->a", "d->b"), absent=("c->a",))
    told = one_order.answer(query)
    np.testing.assert_allclose(probabilities(told), probabilities(all_orders.answer(query)), atol=1e-9)
    assert told["coverage"]["orders"] == 1.0
    best = Graph(present=("e->a", "d->b"), absent=("c->a",))
    assert one_order.answer(best)["edges"] == all_orders.answer(best)["edges"]


def test_what_the_lattice_holds_is_answered_from_it():
    ours = asked(chain_of_sets([0, 1, 2, 3, 4]))
    assert ours.answer(Edges(present=("a->e",)))["coverage"]["n_draws"] == 40
    assert not ours.conditional._kept


def test_every_query_takes_edges_outside_the_lattice():
    ours, exact = asked(chain_of_sets([0, 1, 2, 3, 4])), asked(None)
    paths = ours.answer(Paths(present=("e->a",), n=2000))["paths"]
    expected = exact.answer(Paths(present=("e->a",)))["paths"]
    for one, other in zip(paths, expected, strict=True):
        assert one["probability"] == pytest.approx(other["probability"], abs=5 * one["standard_error"] + 1e-3)
    effects = ours.answer(Effects(present=("e->a",), n=100))["effects"]
    for one, other in zip(effects, exact.answer(Effects(present=("e->a",), n=100))["effects"], strict=True):
        assert one["mean"] == pytest.approx(other["mean"], abs=1e-9)


@pytest.mark.parametrize("is_exact", [True, False])
def test_a_known_parent_that_is_no_candidate_becomes_one(is_exact):
    ours = asked(None if is_exact else chain_of_sets([4, 3, 2, 1, 0]), FEW)
    told = ours.answer(Edges(present=("d->a",)))
    wider = (np.array([1, 3], np.int64), *FEW[1:])
    scores = family_scores(ours.posterior.bge, StructurePrior(), candidates=wider)
    sums = lattice_order_sums(scores, lattice_of_all_orders(scores), KnownEdges(frozenset({(3, 0)})))
    by_edge = {(each["from"], each["to"]): each["probability"] for each in told["edges"]}
    assert by_edge["d", "a"] == pytest.approx(1)
    known = (StructurePrior(), frozenset({(3, 0)}), D - 1)
    own = add_present_edge_candidates(ours.posterior.scores, ours.posterior.bge, *known)
    np.testing.assert_allclose(own.logs, scores.logs)
    exact = GraphQueries(OrderPosterior(scores, None, Coverage(), ours.posterior.bge, Standard.none(D)), NAMES)
    np.testing.assert_allclose(probabilities(told), probabilities(exact.answer(Edges(present=("d->a",)))), atol=1e-9)
    assert np.isfinite(sums.log_z)


@pytest.mark.parametrize(
    ("parameters", "present", "words"),
    [
        ({"forbidden": ("d->a",)}, ("d->a",), "the prior forbids d->a"),
        ({"required": ("a->d",)}, ("d->a",), "a->d->a is a cycle, together with the edges that the prior requires"),
        ({"most": 1, "candidates": FEW}, ("d->a", "e->a"), "'a' would have 2 parents, and may have 1"),
    ],
)
def test_what_no_graph_of_the_prior_has_is_refused(parameters, present, words):
    ours = asked(chain_of_sets([0, 1, 2, 3, 4]), **parameters)
    with pytest.raises(ImpossibleEdges, match=words):
        ours.answer(Edges(present=present))


def test_the_latest_lattices_are_kept():
    ours = asked(chain_of_sets([0, 1, 2, 3, 4]))
    known = KnownEdges(frozenset({(4, 0)}))
    first = ours.conditional.given(known)
    assert ours.conditional.given(known) is first
    for node in range(4):
        ours.conditional.given(KnownEdges(absent=frozenset({(node, 4)})))
    assert ours.conditional.given(known) is not first
    assert ours.conditional.parameters.sets == MOST_SETS


def test_a_deadline_ends_the_growth():
    ours = asked(np.array([0, 31, 1, 3, 7, 15], np.uint64)[[0, 2, 3, 4, 5, 1]])

    def late():
        raise TimeoutError("too late")

    with pytest.raises(TimeoutError, match="too late"):
        ours.answer(Edges(present=("e->a",)), late)
