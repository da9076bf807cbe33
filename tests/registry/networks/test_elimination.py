"""Answers by elimination against all worlds, against circuits, and against predictions; what they cost is counted before."""

import numpy as np
import pyarrow as pa
import pytest

from fewpass import KDB, SKDB, TAN
from learners import load_model
from learners.circuits.errors import ImpossibleEvidence, InvalidEvidence
from learners.models.evidence import NoneOf, Range
from learners.models.query import Conditional, Impute, Map, Marginal, Sample, Surprise
from learners.orders.formats.network_tables import Network
from learners.registry.discrete_networks import network_model
from learners.registry.networks.elimination.orders import clique_tree
from learners.registry.networks.elimination.rows import BYTES_PER_CELL, Elimination, TablesTooLargeToSum
from learners.registry.networks.network_answers import answer_network_queries, compile_model_circuit
from tests.naive.networks import random_network, worlds

TOLERANCE = 1e-12


def summed(network):
    """A network without a circuit."""
    return network_model(network, max_edges=0)


def weighed_worlds(network, evidence, likely):
    """The worlds that agree with evidence, each with its probability times its likelihood."""
    for world, p in worlds(network):
        if evidence.items() <= world.items():
            yield world, p * float(np.prod([weights.get(world[name], 0.0) for name, weights in likely.items()]))


def shares(cells, names):
    """The probability of each combination of values of some variables, given worlds."""
    total, told = sum(p for _, p in cells), {}
    for world, p in cells:
        key = tuple(world[name] for name in names)
        told[key] = told.get(key, 0.0) + p / total
    return told


@pytest.mark.parametrize("seed", range(60))
def test_answers_are_those_of_all_worlds(seed):
    network, rng = random_network(seed, d=6), np.random.default_rng(seed)
    model = summed(network)
    names = rng.permutation(list(network.values)).tolist()
    likeliest = max(worlds(network), key=lambda each: each[1])[0]
    evidence = {name: likeliest[name] for name in names[: seed % 3]}
    likely = {names[3]: {value: 1.0 + i for i, value in enumerate(network.values[names[3]])}} if seed % 2 else {}
    cells = list(weighed_worlds(network, evidence, likely))
    given = {"evidence": evidence, "likely": likely}
    others = [name for name in names if name not in evidence]
    pair, few = tuple(others[:2]), tuple(others[1:4])
    marginal, each, together, best, some, guess, rows = model.answer(
        [
            Marginal(**given),
            Conditional(**given),
            Conditional(pair, joint=True, **given),
            Map(best=4, **given),
            Map(few, best=3, **given),
            Impute(**given),
            Sample(30, seed=seed, **given),
        ]
    )
    total = sum(p for _, p in cells)
    assert marginal["probability"] == pytest.approx(total, abs=TOLERANCE)
    assert set(each["distributions"]) == set(others)
    for name, told in each["distributions"].items():
        known = shares(cells, [name])
        assert told == pytest.approx({value: known.get((value,), 0.0) for value in told}, abs=TOLERANCE)
        assert guess["imputed"][name]["probability"] == pytest.approx(max(told.values()), abs=TOLERANCE)
    for cell in together["distribution"]:
        known = shares(cells, pair).get(tuple(cell["values"][name] for name in pair), 0.0)
        assert cell["probability"] == pytest.approx(known, abs=TOLERANCE)
    for answer, asked in ((best, others), (some, few)):
        known = sorted(shares(cells, asked).values(), reverse=True)
        n_possible = sum(p > 0 for p in known)
        found = [np.exp(own["log_probability"]) / total for own in answer["best"]]
        assert found == pytest.approx(known[: min(len(answer["best"]), n_possible)], abs=TOLERANCE)
        for own in answer["best"]:
            key = tuple(own["assignment"][name] for name in asked)
            assert shares(cells, asked)[key] * total == pytest.approx(np.exp(own["log_probability"]), abs=TOLERANCE)
        keys = [tuple(own["assignment"].items()) for own in answer["best"]]
        assert len(set(keys)) == len(keys) == min(4 if answer is best else 3, n_possible)
        assert answer["is_optimal"] and answer["upper_bound"] == answer["log_probability"]
    possible = [world for world, p in cells if p > 0]
    assert all(row in possible for row in rows["rows"])


@pytest.mark.parametrize("seed", range(8))
def test_rows_with_patterns_of_their_own_are_answered_as_the_circuit_does(seed):
    network, rng = random_network(seed, d=6), np.random.default_rng(seed)
    by_circuit, model = network_model(network), summed(network)
    sizes = np.array(by_circuit.columns.n_values)
    worlds_drawn = by_circuit.row_draws(np.full((6, 1), np.nan), 40, seed, np.zeros(1, np.int64))[0].T
    x = np.where(rng.random(worlds_drawn.shape) < 0.5, worlds_drawn, np.nan)
    assert model.row_logs(x) == pytest.approx(by_circuit.row_logs(x), abs=TOLERANCE)
    for ours, theirs in zip(model.row_marginals(x, range(6)), by_circuit.row_marginals(x, range(6)), strict=True):
        assert ours == pytest.approx(theirs, abs=TOLERANCE)
    draws = model.row_draws(x, 5, seed, np.arange(40))
    assert draws.shape == (40, 5, 6) and ((draws >= 0) & (draws < sizes)).all()
    assert (draws.transpose(1, 2, 0)[:, ~np.isnan(x)] == x[~np.isnan(x)]).all()
    assert np.array_equal(model.row_draws(x[:, 7:9], 5, seed, np.arange(7, 9)), draws[7:9])


def test_draws_have_the_frequencies_of_the_distribution():
    """By chi-squared of 20,000 draws over all worlds that are possible given what is known."""
    network = random_network(12, d=4)
    name = max(network.values, key=lambda own: len(network.values[own]))
    evidence = {name: max(worlds(network), key=lambda each: each[1])[0][name]}
    known = shares(list(weighed_worlds(network, evidence, {})), list(network.values))
    (told,) = summed(network).answer([Sample(20_000, evidence, seed=3)])
    counts = dict.fromkeys(known, 0)
    for row in told["rows"]:
        counts[tuple(row[own] for own in network.values)] += 1
    expected = {key: 20_000 * p for key, p in known.items() if p > 0}
    assert all(counts[key] == 0 for key in counts if key not in expected)
    chi = sum((counts[key] - n) ** 2 / n for key, n in expected.items())
    assert chi < len(expected) + 5 * np.sqrt(2 * len(expected))


def chain_of_witnesses(n):
    """A class with n columns, the first half of which all but exclude "a", the others "b"."""
    odds = [(1e-9, 1.0 - 1e-9), (1.0 - 1e-9, 1e-9)]
    values = {"y": ("a", "b")} | {f"x{i}": ("u", "v") for i in range(n)}
    parents = {"y": ()} | dict.fromkeys(list(values)[1:], ("y",))
    tables = {"y": {(): (0.3, 0.7)}}
    for i in range(n):
        of_a, of_b = odds[i >= n // 2]
        tables[f"x{i}"] = {("a",): (of_a, 1.0 - of_a), ("b",): (of_b, 1.0 - of_b)}
    return Network(values, parents, tables)


def test_what_doubles_would_lose_on_the_way_is_kept():
    """Of a class after half of its columns there is less than the least double left, and the other half brings it back."""
    network = chain_of_witnesses(200)
    evidence = {name: "u" for name in network.values if name != "y"}
    marginal, conditional, best = summed(network).answer(
        [Marginal(evidence), Conditional("y", evidence), Map(evidence=evidence)]
    )
    log = 100 * (np.log(1e-9) + np.log1p(-1e-9))
    assert marginal["log_probability"] == pytest.approx(log, rel=1e-12)
    assert conditional["distributions"]["y"] == pytest.approx({"a": 0.3, "b": 0.7}, rel=1e-9)
    assert best["assignment"] == {"y": "b"}


def test_impossible_evidence_names_the_column():
    network = Network(
        {"a": ("x", "y"), "b": ("x", "y")},
        {"a": (), "b": ("a",)},
        {"a": {(): (0.5, 0.5)}, "b": {("x",): (1.0, 0.0), ("y",): (0.0, 1.0)}},
    )
    for kind in (Conditional, Map, Sample):
        with pytest.raises(ImpossibleEvidence, match="column 'b' is never, given the other evidence, 'y'"):
            summed(random_with_free(network)).answer([kind(evidence={"a": "x", "b": "y"})])
    assert summed(network).answer([Marginal({"a": "x", "b": "y"})])[0]["probability"] == 0.0


def random_with_free(network):
    """The network with one column more, so that something is left to ask for."""
    return Network(
        {**network.values, "c": ("u", "v")}, {**network.parents, "c": ()}, {**network.tables, "c": {(): (0.5, 0.5)}}
    )


def grid(n, m, seed=0):
    """A grid of two values each, of which a circuit would have millions of edges."""
    rng = np.random.default_rng(seed)
    values = {f"g{i}_{j}": ("a", "b") for i in range(n) for j in range(m)}
    parents = {
        f"g{i}_{j}": tuple(f"g{a}_{b}" for a, b in ((i - 1, j), (i, j - 1)) if a >= 0 and b >= 0)
        for i in range(n)
        for j in range(m)
    }
    tables = {}
    for name, own in parents.items():
        p = rng.uniform(0.1, 0.9, 2 ** len(own))
        keys = [tuple("ab"[k >> i & 1] for i in range(len(own))) for k in range(p.size)]
        tables[name] = {key: (float(q), 1.0 - float(q)) for key, q in zip(keys, p, strict=True)}
    return Network(values, parents, tables)


def test_a_network_too_large_for_a_circuit_is_imported_stored_and_answers():
    model = network_model(grid(13, 13))
    assert model.n_edges > 2_000_000 and not model.has_small_circuit
    evidence = {"g5_5": "a", "g12_12": "b"}
    marginal, conditional, best, surprise = model.answer(
        [Marginal(evidence), Conditional(("g0_0", "g6_6"), evidence), Map(evidence=evidence), Surprise(evidence, n=50)]
    )
    # P(g6_6 = a, evidence) by itself, from the other end.
    (more,) = model.answer([Marginal(evidence | {"g6_6": "a"})])
    assert conditional["distributions"]["g6_6"]["a"] == pytest.approx(
        more["probability"] / marginal["probability"], abs=TOLERANCE
    )
    (whole,) = model.answer([Marginal(evidence | best["assignment"])])
    assert whole["log_probability"] == pytest.approx(best["log_probability"], rel=1e-12)
    assert surprise["log_likelihood"] == pytest.approx(marginal["log_probability"], abs=1e-12)
    stored = load_model(*model.to_arrays(), is_trusted=False)
    assert stored.answer([Marginal(evidence)]) == [marginal]
    assert len(stored.structure()["edges"]) == 2 * 12 * 13 and stored.structure()["elimination"]["n_cells"] > 0
    assert stored.tables()["probabilities"].num_rows == sum(2 ** (len(own) + 1) for own in model.network.parents)


def test_values_that_look_like_numbers_or_truth_values_are_words():
    """As `--given on=true` and `--given level=1` are read; networks of files have words only."""
    network = Network(
        {"on": ("false", "true"), "level": ("0", "1")},
        {"on": (), "level": ("on",)},
        {"on": {(): (0.25, 0.75)}, "level": {("false",): (0.5, 0.5), ("true",): (0.9, 0.1)}},
    )
    for model in (network_model(network), summed(network)):
        told = model.answer([Marginal({"on": True, "level": 1}), Marginal({"on": False, "level": "1"})])
        assert [each["probability"] for each in told] == pytest.approx([0.075, 0.125])


def test_the_cost_is_counted_before_a_table_is_made():
    network = network_model(grid(13, 13)).network
    whole = Elimination(network).n_cells((), range(169))
    corner = Elimination(network).n_cells((), [14])  # and its ancestors: all others add up to one
    known = Elimination(network).n_cells(range(6 * 13, 7 * 13), range(169))  # a row that is known halves the grid
    assert corner < 20 < known < whole / 10
    with pytest.raises(TablesTooLargeToSum, match=f"needs tables of {whole:,} probabilities"):
        Elimination(network, whole * BYTES_PER_CELL - 1).row_marginals(np.full((169, 1), np.nan), range(169), {})


def test_a_clique_tree_keeps_families_together_and_shares_connected():
    for seed in range(30):
        network = network_model(random_network(seed, d=8)).network
        scopes = [(*own, v) for v, own in enumerate(network.parents)]
        sizes = [table.shape[-1] for table in network.tables]
        tree = clique_tree(scopes, sizes, last={0, 3})
        assert all(set(scope) <= set(tree.cliques[tree.place_of(scope)].scope) for scope in scopes)
        for place, clique in enumerate(tree.cliques):
            assert clique.parent == -1 or clique.parent > place
            assert not clique.separator or set(clique.separator) <= set(tree.cliques[clique.parent].scope)
        order = [v for clique in tree.cliques for v in clique.eliminated]
        assert sorted(order) == list(range(8)) and set(order[-2:]) == {0, 3}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 500)
    columns = {name: np.char.mod("v%d", (y + rng.integers(0, 2, 500)) % 3) for name in "abcd"}
    size = pa.array(y + rng.normal(0, 1, 500), mask=rng.random(500) < 0.1)
    return pa.table(columns | {"size": size, "class": np.char.mod("c%d", y)})


@pytest.mark.parametrize("make", [TAN, lambda: KDB(k=2), lambda: SKDB(k=2)])
def test_queries_say_what_predictions_say(table, make):
    """By a circuit and without one, but for the 24 bits of the logarithms in which predictions are looked up; all kinds of evidence."""
    model = make().fit(table, "class")
    rows = table.slice(0, 20)
    p = model.predict_proba(rows.drop(["class"]))
    cut = model.model_.schema.attributes[-1].cuts[0]
    several = [{"a": ("v0", "v1")}, {"a": NoneOf(("v2",))}, {"size": Range(None, cut)}, {"size": None, "b": "v1"}]
    for max_edges in (2_000_000, 0):
        network = compile_model_circuit(model.model_, max_edges)
        for row, expected in zip(rows.to_pylist(), p, strict=True):
            if row["size"] is None:  # of which a prediction allows that it is hidden by chance
                continue
            evidence = {name: value for name, value in row.items() if name != "class"}
            (told,) = network.answer([Conditional("class", evidence)])
            assert list(told["distributions"]["class"].values()) == pytest.approx(expected.tolist(), abs=2e-7)
    for evidence in several:
        ours, theirs = (
            answer_network_queries(
                model.model_, [Conditional("class", evidence)], lambda n=n: compile_model_circuit(model.model_, n)
            )[0]["distributions"]["class"]
            for n in (0, 2_000_000)
        )
        assert ours == pytest.approx(theirs, abs=TOLERANCE)


def test_numbers_of_the_evidence_name_the_intervals_that_they_stand_for(table):
    model = KDB(k=1).fit(table, "class").model_
    size = model.schema.attributes[-1]
    cut, labels = size.cuts[0], size.unique_labels()

    def stands_for(evidence):
        (answer,) = answer_network_queries(
            model, [Conditional(("class",), evidence)], lambda: compile_model_circuit(model)
        )
        return answer.get("stands_for")

    first, second = labels[int(size.has_missing)], labels[int(size.has_missing) + 1]
    assert stands_for({"size": cut}) == {"size": first}
    assert stands_for({"size": [cut, np.nextafter(cut, np.inf)], "a": "v0"}) == {"size": f"{first} or {second}"}
    for evidence in ({"size": Range(None, cut)}, {"size": first}, {"size": None}, {"a": "v1"}):
        assert stands_for(evidence) is None
    with pytest.raises(
        InvalidEvidence, match=r"'size' is cut into intervals, and .* holds other numbers too: exclude the whole"
    ):
        stands_for({"size": NoneOf((cut,))})
    assert stands_for({"size": NoneOf((first,))}) is None
