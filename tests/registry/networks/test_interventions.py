"""do() against the truncated factorisation, world by world; back doors against the adjustment formula."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from fewpass import ESKDB, TAN, StructurePosterior
from learners import load_model, network_model
from learners.circuits.errors import InvalidEvidence, NoArcs, NoGraphs
from learners.circuits.model import CircuitModel
from learners.errors import InvalidParameter, UnknownColumn
from learners.models.estimation import Average, Sampling
from learners.models.evidence import Range
from learners.models.query import Conditional, Effects, Impute, Map, Marginal, Moments, Sample
from learners.orders.queries.queries import GraphQueries
from learners.registry.networks.interventions import adjustment_set, descendant_nodes
from learners.registry.networks.model_networks import NoRows
from learners.registry.networks.network_answers import answer_network_queries, model_arc_network
from tests.naive.networks import random_network, worlds
from tests.strategies import up_to

TOLERANCE = 1e-10


@pytest.mark.parametrize("seed", range(200))
def test_a_network_with_and_without_an_intervention_answers_as_all_its_worlds(seed):
    """By the truncated factorisation, of which the product of all tables is the case that sets nothing."""
    network, rng = random_network(seed), np.random.default_rng(seed)
    model = network_model(network)
    set_columns = rng.permutation(list(network.values))[: seed % 3].tolist()
    do = {name: str(rng.choice(network.values[name])) for name in set_columns}
    cells = list(worlds(network, do))
    assert sum(p for _, p in cells) == pytest.approx(1.0, abs=TOLERANCE)
    likeliest = max(cells, key=lambda each: each[1])[0]
    others = [name for name in network.values if name not in do]
    n_known = seed % 4 if do else 1 + seed % 4
    evidence = {name: likeliest[name] for name in others[:-1][:n_known]}
    held = [(world, p) for world, p in cells if evidence.items() <= world.items()]
    total = sum(p for _, p in held)
    marginal, conditional, best, rows, guess = model.answer(
        [
            Marginal(evidence, do=do),
            Conditional(evidence=evidence, do=do),
            Map(evidence=evidence, do=do),
            Sample(20, evidence, do=do),
            Impute(evidence=evidence, do=do),
        ]
    )
    assert marginal["probability"] == pytest.approx(total, abs=TOLERANCE)
    asked = [name for name in others if name not in evidence]
    assert set(conditional["distributions"]) == set(asked) == set(best["assignment"]) == set(guess["imputed"])
    (alone,) = model.answer([Conditional(asked[0], evidence, do=do)])
    assert alone["distributions"][asked[0]] == pytest.approx(conditional["distributions"][asked[0]], abs=TOLERANCE)
    for name in asked:
        for value, p in conditional["distributions"][name].items():
            assert p == pytest.approx(sum(q for world, q in held if world[name] == value) / total, abs=TOLERANCE)
    assert np.exp(best["log_probability"]) == pytest.approx(max(p for _, p in held), abs=TOLERANCE)
    possible = [world for world, p in held if p > 0]
    assert all(row in possible for row in rows["rows"])
    cut = conditional["intervention"]["cut"] if do else []
    assert {(arc["from"], arc["to"]) for arc in cut} == {(up, name) for name in do for up in network.parents[name]}


@pytest.mark.parametrize("seed", up_to(60, 200))
def test_adjusting_for_the_named_columns_tells_the_same(seed):
    network, rng = random_network(seed, d=6), np.random.default_rng(seed)
    network = type(network)(  # without zeros, so that every stratum has rows
        network.values,
        network.parents,
        {
            name: {key: tuple(rng.dirichlet(np.ones(len(p)) * 2).tolist()) for key, p in table.items()}
            for name, table in network.tables.items()
        },
    )
    model, names = network_model(network), list(network.values)
    cause = names[int(rng.integers(6))]
    value = network.values[cause][0]
    (told,) = model.answer([Conditional(do={cause: value})])
    whole = {tuple(world.values()): p for world, p in worlds(network)}
    n_causes = 0
    for pair in told["intervention"]["back_door"]:
        outcome, z = names.index(pair["to"]), [names.index(name) for name in pair["adjust_for"]]
        x = names.index(cause)
        n_causes += pair["is_cause"]
        for place, p in enumerate(told["distributions"][pair["to"]].values()):
            y, found = network.values[pair["to"]][place], 0.0
            if pair["is_cause"]:
                for stratum in itertools.product(*(network.values[names[v]] for v in z)):
                    own = {w: q for w, q in whole.items() if tuple(w[v] for v in z) == stratum}
                    with_x = sum(q for w, q in own.items() if w[x] == value)
                    with_both = sum(q for w, q in own.items() if w[x] == value and w[outcome] == y)
                    found += sum(own.values()) * with_both / with_x
            else:
                found = sum(q for w, q in whole.items() if w[outcome] == y)
            assert p == pytest.approx(found, abs=TOLERANCE)
    assert n_causes == len(descendant_nodes(model_arc_network(model).parents, names.index(cause)))


def test_a_confounder_is_named_and_only_what_is_needed():
    # z -> x, z -> y, x -> y; w -> x is no confounder.
    parents = ((), (0, 3), (0, 1), ())
    assert adjustment_set(parents, 1, 2) == (0,)
    # A collider: x -> c <- y opens nothing.
    assert adjustment_set(((), (0,), ()), 0, 1) == ()


def test_a_network_of_a_file_is_kept_with_its_arcs(tmp_path):
    model = network_model(random_network(3))
    again = load_model(*model.to_arrays(), is_trusted=False)
    asked = [Conditional(do={"x0": "a"}), Conditional()]
    assert again.answer(asked) == model.answer(asked)
    assert again.structure()["edges"] == model.structure()["edges"] != []


@pytest.fixture(scope="module")
def numbers():
    rng = np.random.default_rng(3)
    z = rng.normal(2.0, 1.0, 300)
    x = 3.0 * z + rng.normal(0.0, 2.0, 300)
    y = 100.0 - 4.0 * x + 5.0 * z + rng.normal(0.0, 1.5, 300)
    return StructurePosterior().fit(pa.table({"z": z, "x": x, "y": y}))


EDGES, ABSENT = ("z->x", "z->y", "x->y"), ("x->z", "y->z", "y->x")


def difference(posterior, graph):
    low, high = (posterior.query(Moments(("y",), do={"x": at}, graph=graph)) for at in (6.0, 7.0))
    return high["moments"]["y"]["mean"] - low["moments"]["y"]["mean"], low


def test_numbers_move_by_their_effect(numbers):
    pairs = numbers.query(Effects(present=EDGES, absent=ABSENT))["effects"]
    effect = next(pair["mean"] for pair in pairs if (pair["from"], pair["to"]) == ("x", "y"))
    moved, told = difference(numbers, EDGES)
    assert moved == pytest.approx(effect, abs=TOLERANCE)
    assert told["graph"] == "given" and told["log_evidence"] == pytest.approx(0.0, abs=1e-9)
    assert told["intervention"]["back_door"] == [{"from": "x", "to": "y", "is_cause": True, "adjust_for": ["z"]}]
    # One graph only: the average is that graph.
    average, told = difference(numbers, Average(n=10, present=EDGES, absent=ABSENT))
    assert average == pytest.approx(effect, abs=1e-9) and told["n_graphs"] == 1
    assert told["moments"]["y"]["standard_error"] == pytest.approx(0.0, abs=1e-9)
    # Over all graphs the mean effect, which `effects` knows exactly.
    exact = {(pair["from"], pair["to"]): pair["mean"] for pair in numbers.query(Effects())["effects"]}
    average, told = difference(numbers, Average(n=150, seed=1))
    assert average == pytest.approx(exact["x", "y"], abs=0.3)
    low, high = told["moments"]["y"]["interval"]
    assert low < told["moments"]["y"]["mean"] < high


def test_intervals_of_numbers_hold_what_drawn_coefficients_say(numbers):
    pairs = numbers.query(Effects(present=EDGES, absent=ABSENT, n=4000))["effects"]
    pair = next(pair for pair in pairs if (pair["from"], pair["to"]) == ("x", "y"))
    # Far away the slope is all that is uncertain.
    told = numbers.query(Moments(("y",), do={"x": 1e6}, graph=Average(n=300, level=0.9, present=EDGES, absent=ABSENT)))
    low, high = told["moments"]["y"]["interval"]
    assert (high - low) / 1e6 == pytest.approx(pair["high"] - pair["low"], rel=0.2)


def test_numbers_in_ranges_move_the_others(numbers):
    """After do() the cause has its own distribution, cut to the range; what depends on it is sampled, or refused."""
    known, edges = {"z": Range(1.0, 2.0)}, ("z->x", "x->y")
    one = numbers.query(Moments(("z", "x"), known, graph=edges))["moments"]
    slope = numbers.query(Moments(("x",), do={"z": 1.0}, graph=edges))["moments"]["x"]["mean"]
    slope = numbers.query(Moments(("x",), do={"z": 2.0}, graph=edges))["moments"]["x"]["mean"] - slope
    at_mean = numbers.query(Moments(("x",), do={"z": one["z"]["mean"]}, graph=edges))["moments"]["x"]
    assert one["x"]["mean"] == pytest.approx(at_mean["mean"], rel=1e-9)
    assert one["x"]["variance"] == pytest.approx(at_mean["variance"] + slope**2 * one["z"]["variance"], rel=1e-9)
    both = known | {"x": Range(0.0, 6.0)}
    told = numbers.query(Moments(("z",), both, graph=edges, sampling=Sampling(error=0.05)))
    assert 1.0 < told["moments"]["z"]["mean"] < one["z"]["mean"] and told["sampled"]["is_reached"]
    with pytest.raises(
        InvalidParameter,
        match=r"graph='average' .* ranges of several columns that depend on each other have no exact answer in some graphs: give a range of one",
    ):
        numbers.query(Moments(("z",), both, graph=Average(n=2), sampling=Sampling()))


@pytest.fixture(scope="module")
def words():
    rng = np.random.default_rng(5)
    z = rng.random(400) < 0.5
    x = rng.random(400) < np.where(z, 0.8, 0.2)
    y = rng.random(400) < np.where(x, 0.3, 0.6) + 0.3 * z
    table = pa.table({name: np.where(v, "yes", "no") for name, v in (("z", z), ("x", x), ("y", y))})
    return StructurePosterior().fit(table)


def test_states_are_averaged_over_all_graphs(words):
    """Against the sum over every graph of three columns, weighed by its score and number of orders."""
    model = words.model_
    asked, expected, total = model.graph_queries, np.zeros(2), 0.0
    assert isinstance(asked, GraphQueries)
    pairs = list(itertools.permutations("zxy", 2))
    for chosen in itertools.product([False, True], repeat=len(pairs)):
        edges = tuple(f"{a}->{b}" for (a, b), is_in in zip(pairs, chosen, strict=True) if is_in)
        n_orders = sum(
            all(order.index(edge[0]) < order.index(edge[-1]) for edge in edges)
            for order in itertools.permutations("zxy")
        )
        if not n_orders:
            continue
        log_score = asked._own_logs(asked.parents_of(edges, "graph"))["log_score"]
        weight = n_orders * np.exp(log_score - model.best.log_score)
        known = {"evidence": {"z": "yes"}, "do": {"x": "yes"}, "graph": edges}
        told, own = answer_network_queries(model, [Marginal(**known), Conditional("y", **known)], words.network)
        weight *= told["probability"]
        expected += weight * np.array(list(own["distributions"]["y"].values()))
        total += weight
    query = Conditional("y", {"z": "yes"}, do={"x": "yes"}, graph=Average(n=600, seed=2))
    told = words.query(query)
    for place, value in enumerate(("no", "yes")):
        error = told["standard_errors"]["y"][value]
        assert told["distributions"]["y"][value] == pytest.approx((expected / total)[place], abs=4 * error + 1e-4)
        low, high = told["intervals"]["y"][value]
        assert low < told["distributions"]["y"][value] < high
    assert told["graph"] == "average" and told["coverage"]["is_exact"]
    (pair,) = told["intervention"]["back_door"]
    assert 0 <= pair["probability"] <= 1 and set(pair["adjust_for"]) <= {"z"}


def test_classifiers_are_asked_in_python():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    columns = {name: np.char.mod("v%d", (y + rng.integers(0, 2, 200)) % 3) for name in "ab"} | {"class": y}
    table = pa.table(columns)
    for estimator in (TAN(), ESKDB(members=2)):
        model = estimator.fit(table, "class")
        told = model.query(Conditional("class", do={"a": "v1"}))
        plain = model.query(Conditional("class"))
        assert told["distributions"]["class"] == pytest.approx(plain["distributions"]["class"])
        assert {"from": "class", "to": "a"} in told["intervention"]["cut"]


def test_what_cannot_be_set_is_told(words, numbers):
    model = network_model(random_network(1))
    for query, error, message in (
        (
            Marginal({"x0": "a"}, do={"x0": "b"}),
            InvalidEvidence,
            "'x0' is both set by do and given as evidence: keep one of the two",
        ),
        (
            Conditional("x0", do={"x0": "b"}),
            InvalidEvidence,
            "'x0' is both queried and given as evidence: keep one of the two",
        ),
        (Marginal(do={"x0": ("a", "b")}), InvalidEvidence, "must be set to a single value"),
        (Marginal(do={"x0": "q"}), InvalidEvidence, "never had the value 'q'"),
        (Marginal(do={"w": "q"}), UnknownColumn, "'w' is not"),
        (Marginal(graph=Average()), NoGraphs, "leave graph"),
    ):
        with pytest.raises(error, match=message):
            model.answer([query])
    with pytest.raises(
        NoArcs, match=r"An intervention .do. cuts the arcs into a column, but this model is not a network with arcs"
    ):
        CircuitModel(words.network().schema, words.network().circuit, {}).answer([Marginal(do={"x": "yes"})])
    assert "intervention" in words.network().answer([Marginal(do={"x": "yes"})])[0]
    words.model_.graph_queries.bdeu, kept = None, words.model_.graph_queries.bdeu
    with pytest.raises(NoRows, match="keep_rows=true"):
        words.query(Marginal(do={"x": "yes"}, graph=Average(n=4)))
    words.model_.graph_queries.bdeu = kept
    assert words.query(Conditional("y", do={"x": "yes"}))["graph"] == "best"
