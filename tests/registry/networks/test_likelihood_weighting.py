"""Answers from samples against exact ones, and what is said of them."""

import numpy as np
import pyarrow as pa
import pytest

from fewpass import KDB, SKDB, Sampling, StructurePosterior
from learners.errors import InvalidParameter
from learners.models.query import Conditional, Impute, Map, Marginal, Sample, Surprise
from learners.orders.formats.network_tables import Network
from learners.registry.discrete_networks import network_model
from learners.registry.networks.elimination.rows import TablesTooLargeToSum
from learners.registry.networks.interventions import answer_after_intervention
from learners.registry.networks.likelihood_weighting import NotSampled, NoWorlds
from learners.registry.networks.network_answers import answer_network_queries, compile_model_circuit, model_arc_network
from tests.naive.networks import random_network

SAMPLING = Sampling(error=0.01, time_limit_s=60.0)


def too_large(model):
    """What answers to a model where neither a circuit nor the tables of an exact answer are allowed."""
    return lambda: compile_model_circuit(model, max_edges=0, most_bytes=0)


def question(seed):
    """A random network, and a query with evidence, soft evidence or an intervention that is possible."""
    network, rng = random_network(seed, d=6), np.random.default_rng(seed)
    model = network_model(network)
    names = rng.permutation(list(network.values)).tolist()
    (row,) = model.answer([Sample(1, seed=seed)])[0]["rows"]
    evidence = {names[0]: row[names[0]]} if seed % 3 else {}
    likely = {names[1]: {value: 0.2 + 0.8 * rng.random() for value in network.values[names[1]]}} if seed % 2 else {}
    do = {names[2]: row[names[2]]} if seed % 5 == 0 else {}
    return model, names, {"evidence": evidence, "likely": likely, "do": do}


def test_samples_are_within_three_standard_errors():
    """Of 300 queries, and as many probabilities of evidence."""
    n_within = n_marginals = n_sampled = 0
    for seed in range(300):
        model, names, given = question(seed)
        network = model_arc_network(model)
        query = Conditional((names[3],), **given, sampling=Sampling(error=0.01, time_limit_s=60.0, seed=seed))
        told, exact = answer_after_intervention(network, query, 0), answer_after_intervention(network, query)
        assert "sampled" in told and "sampled" not in exact
        p, true = (np.array(list(each["distributions"][names[3]].values())) for each in (told, exact))
        errors = np.array(list(told["standard_errors"][names[3]].values()))
        assert told["sampled"]["is_reached"] and errors.max() <= 0.01 and p.sum() == pytest.approx(1.0)
        n_within += bool((np.abs(p - true) <= 3 * errors).all())
        query = Marginal(**given, sampling=Sampling(error=0.02, time_limit_s=60.0, seed=seed))
        told, exact = answer_after_intervention(network, query, 0), answer_after_intervention(network, query)
        n_sampled += "sampled" in told  # else nothing is left to sum, as without evidence
        error = 3 * told.get("standard_error", 0.0) + 1e-12
        n_marginals += abs(told["probability"] - exact["probability"]) <= error
    assert n_within >= 291 and n_marginals >= 291 and n_sampled >= 150


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    columns = {name: np.char.mod("v%d", (y + rng.integers(0, 2, 300)) % 3) for name in "abcdef"}
    return pa.table(columns | {"class": y})


def assert_within_errors(sampled, exact):
    p, errors = sampled["distributions"]["class"], sampled["standard_errors"]["class"]
    assert all(abs(p[c] - exact["distributions"]["class"][c]) <= 4 * errors[c] for c in p)


@pytest.mark.parametrize("make", [lambda: KDB(k=2), lambda: SKDB(k=2)])
def test_a_classifier_too_large_for_a_circuit_answers_by_samples(table, make):
    model = make().fit(table, "class").model_
    b, c = [name for name in "abcdef" if name in {model.schema.attributes[i].name for i in model.network.order}][:2]
    queries = [
        Conditional("class", {b: ("v0", "v1"), c: "v1"}, sampling=SAMPLING),
        Marginal({b: "v0"}, sampling=SAMPLING),
        Impute("class", {b: "v0"}, sampling=SAMPLING),
    ]
    sampled = answer_network_queries(model, queries, too_large(model))
    exact = answer_network_queries(model, queries, lambda: compile_model_circuit(model))
    assert all(answer["sampled"]["n"] >= 1000 for answer in sampled)
    assert not any("sampled" in answer for answer in exact)
    assert_within_errors(sampled[0], exact[0])
    assert abs(sampled[1]["probability"] - exact[1]["probability"]) <= 4 * sampled[1]["standard_error"]
    guess = sampled[2]["imputed"]["class"]
    assert guess["value"] == exact[2]["imputed"]["class"]["value"] and guess["standard_error"] <= 0.01


def test_samples_are_only_taken_where_tables_do_not_fit(table):
    model = KDB(k=2).fit(table, "class").model_
    by_itself, as_asked = answer_network_queries(
        model,
        [Conditional("class", {"a": "v1"}), Conditional("class", {"a": "v1"}, sampling=SAMPLING)],
        too_large(model),
    )
    assert by_itself["sampled"]["largest_error"] <= 0.002 < as_asked["sampled"]["largest_error"] <= 0.01
    for query in (Map(sampling=SAMPLING), Map(), Sample(1, {"b": "v1"})):
        with pytest.raises(NotSampled, match=f"too large for an exact answer to '{query.kind}'"):
            answer_network_queries(model, [query], too_large(model))
    with pytest.raises(TablesTooLargeToSum, match=r"needs tables of [\d,]+ probabilities .*FEWPASS_MEMORY"):
        answer_network_queries(model, [Surprise({"a": "v1"})], too_large(model))
    (exact,) = answer_network_queries(
        model, [Conditional("class", sampling=SAMPLING)], lambda: compile_model_circuit(model)
    )
    assert "sampled" not in exact
    with pytest.raises(InvalidParameter, match="between 0 and 1"):
        Sampling(error=0.0)


def test_the_same_seed_samples_the_same_and_time_ends_it(table):
    model = KDB(k=2).fit(table, "class").model_
    first, second, other = (
        answer_network_queries(
            model, [Conditional("class", {"a": "v1"}, sampling=Sampling(0.005, 60.0, seed))], too_large(model)
        )[0]
        for seed in (1, 1, 2)
    )
    assert first["distributions"] == second["distributions"] != other["distributions"]
    short = Sampling(error=1e-9, time_limit_s=0.05)
    (told,) = answer_network_queries(model, [Conditional("class", sampling=short)], too_large(model))
    assert not told["sampled"]["is_reached"] and told["sampled"]["largest_error"] > 1e-9


def test_impossible_evidence_is_told():
    values = {"a": ("x", "y"), "b": ("u", "v")}
    tables = {"a": {(): (0.5, 0.5)}, "b": {("x",): (1.0, 0.0), ("y",): (1.0, 0.0)}}
    network = network_model(Network(values, {"a": (), "b": ("a",)}, tables)).network
    with pytest.raises(NoWorlds, match=r"None of .* samples .* agrees with the evidence"):
        answer_after_intervention(network, Marginal({"b": "v"}, sampling=Sampling(0.01, 0.05)), 0)


def test_the_best_graph_of_a_posterior_is_sampled(table):
    posterior = StructurePosterior().fit(table)
    query = Conditional("class", {"a": "v1"}, sampling=SAMPLING)
    (told,) = answer_network_queries(posterior.model_, [query], too_large(posterior.model_))
    assert_within_errors(told, posterior.query(query))
    assert told["graph"] == "best" and "sampled" in told
