"""The learner `orders` from table to model."""

import json
import math
import pickle
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fewpass import StructurePosterior
from learners import Source, encode, load_model
from learners.counts.family_counts import Family, FamilyCounts
from learners.errors import NoClass, SchemaError
from learners.models.query import Edges, Effects, Graph, Graphs, Moments, Paths, Score
from learners.orders.formats.bif import parse_bif
from learners.orders.formats.network_tables import InvalidNetwork
from learners.orders.lattice import coverage
from learners.orders.order_learning import corrected_mutual_information
from learners.orders.queries.queries import NotGaussian
from learners.passes.learner import MemoryStore, Part, drive
from learners.registry import recipes
from learners.registry.discrete_networks import model_to_network_text
from learners.registry.networks.model_networks import best_graph_network
from learners.schema import Chunk, Kept
from tests.naive import orders as naive
from tests.naive.information import mutual_information
from tests.naive.orders import naive_bdeu
from tests.orders.problems import (
    EXACT,
    NAMES,
    enumerated,
    learned,
    log_fair,
    naive_bge,
    sensors,
    standardised,
    with_column,
    words,
)


def pairs_of(answer, what="probability"):
    found = np.zeros((4, 4))
    for pair in next(answer[name] for name in ("edges", "paths", "effects") if name in answer):
        found[NAMES.index(pair["from"]), NAMES.index(pair["to"])] = pair[what]
    return found


@pytest.mark.parametrize("is_standardised", [True, False])
def test_numbers_become_the_posterior_of_all_graphs(is_standardised):
    table = sensors()
    unit, x = standardised(table)
    plain = naive_bge(unit if is_standardised else x)
    expected = enumerated(lambda i, p: plain(i, p) + log_fair(4, len(p)))
    model = learned(table, standardise=is_standardised)
    np.testing.assert_allclose(model.probabilities, expected[2], atol=1e-6)
    assert model.facts["score"] == "bge"
    assert model.facts["method"] == "exact"
    answers = model.answer([Edges(), Edges(present=("a->c",), absent=("c -> b",))])
    np.testing.assert_allclose(pairs_of(answers[0]), expected[2], atol=1e-6)
    given = enumerated(lambda i, p: plain(i, p) + log_fair(4, len(p)), present=[(0, 2)], absent=[(2, 1)])
    np.testing.assert_allclose(pairs_of(answers[1]), given[2], atol=1e-6)
    of_evidence = sum(w for graph, w in zip(*expected[:2], strict=True) if 0 in graph[2] and 2 not in graph[1])
    assert answers[1]["log_evidence"] == pytest.approx(math.log(of_evidence), abs=1e-6)


def test_effects_are_in_the_units_of_the_columns():
    table = sensors()
    unit, x = standardised(table)
    plain = naive_bge(unit)
    graphs, weights, _ = enumerated(lambda i, p: plain(i, p) + log_fair(4, len(p)))
    model = learned(table)
    scale = model.posterior.bge.scale
    units = x.std(axis=0)[np.newaxis] / x.std(axis=0)[:, np.newaxis]
    expected = units * sum(w * naive.effect_matrix(graph, scale) for graph, w in zip(graphs, weights, strict=True))
    answer = model.answer([Effects(n=4000)])[0]
    assert answer["is_exact"]
    np.testing.assert_allclose(pairs_of(answer, "mean"), expected - np.diag(np.diag(expected)), rtol=1e-6)
    assert np.all(pairs_of(answer, "low") <= pairs_of(answer, "high"))
    corrected = model.answer([Effects(n=400, prior="graph")])[0]
    assert 40 < corrected["effective_sample_size"] < 400 and not corrected["is_exact"]


def test_words_become_the_posterior_of_all_graphs():
    table, codes = words()
    plain = naive_bdeu(codes, [3] * 4, 2.0)
    expected = enumerated(plain)
    model = learned(table, ess=2.0, prior="uniform")
    np.testing.assert_allclose(model.probabilities, expected[2], atol=1e-9)
    assert model.facts["score"] == "bdeu"
    with pytest.raises(NotGaussian, match="Effects are of linear Gaussian models"):
        model.answer([Effects()])
    with pytest.raises(NoClass, match="or send queries"):
        model.predict_proba(encode(table, model.schema))


def test_priors_and_limits_are_heeded():
    table, codes = words()
    plain = naive_bdeu(codes, [3] * 4, 1.0)
    priors = {"required": ["b->c"], "tiers": [["a", "b"], ["d"]], "edge_log_odds": {"a->d": -1.0, "c->d": 1.5}}
    priors["forbidden"] = ["b->a"]
    model = learned(table, max_parents=2, **priors)

    def log_family(node, parents):
        if len(parents) > 2 or (node == 2 and 1 not in parents) or (node in (0, 1) and 3 in parents):
            return -math.inf
        if node == 0 and 1 in parents:
            return -math.inf
        odds = 1.5 * (node == 3 and 2 in parents) - (node == 3 and 0 in parents)
        return plain(node, parents) + log_fair(4, len(parents)) + odds

    np.testing.assert_allclose(model.probabilities, enumerated(log_family)[2], atol=1e-9)


def test_mixed_tables_are_cut_and_say_so():
    table, _ = words()
    mixed = table.append_column("e", pa.array(np.random.default_rng(1).normal(size=80)))
    model = learned(mixed, n_bins=3)
    assert model.facts["score"] == "bdeu"
    assert model.facts["cut_columns"] == ["e"]
    assert model.schema.attributes[4].n_values == 3
    assert model.facts["taken_as"] == {**dict.fromkeys("abcd", "3 states"), "e": "numbers cut into 3 intervals"}
    told, kept = model.warnings()
    assert "columns of states and of numbers, so all are nominal (e: numbers cut into 3 intervals)" in told
    assert "keeps the" in kept
    assert (
        "to score any graph: everyone who may download the model can read them. Set keep_rows=false to leave them out."
        in kept
    )
    assert learned(words()[0], keep_rows=False).warnings() == []


def xor(n=600, seed=3):
    x = np.random.default_rng(seed).integers(0, 2, (n, 3))
    x[:, 2] = x[:, 0] ^ x[:, 1]
    return x


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.decimal128(5, 1), pa.int8()])
def test_few_different_whole_numbers_are_states(kind):
    """Exclusive or of two columns: no linear Gaussian sees it."""
    x = xor()
    table = pa.table({name: pa.array(x[:, i].astype(np.int8)).cast(kind) for i, name in enumerate("abc")})
    model = learned(table)
    text = learned(pa.table({name: pa.array(x[:, i].astype(str)) for i, name in enumerate("abc")}))
    assert model.facts["taken_as"] == dict.fromkeys("abc", "2 states")
    assert [attribute.values for attribute in model.schema.attributes] == [(0, 1)] * 3
    np.testing.assert_array_equal(model.probabilities, text.probabilities)
    skeleton = model.probabilities + model.probabilities.T
    assert skeleton[np.triu_indices(3, 1)].min() > 0.5
    if kind != pa.int8():  # which is nominal by its type
        assert learned(table, max_states=1, score="auto").facts["score"] == "bge"
        assert learned(table.slice(0, 500), score="bge").facts["taken_as"] == dict.fromkeys("abc", "numbers")


def test_what_is_no_state():
    """Fractions, many numbers, and times, however few; `numeric` by the user."""
    rng = np.random.default_rng(0)
    table = pa.table(
        {
            "half": rng.choice([0.0, 0.5, 1.0], 90),
            "many": rng.permutation(90),
            "day": pa.array(rng.integers(0, 3, 90).astype(np.int32)).cast(pa.date32()),
            "wait": pa.array(rng.integers(0, 3, 90), pa.duration("s")),
            "said": rng.integers(0, 3, 90),
        }
    )
    source = Source.of_table(table)
    model = drive(recipes.learner("orders", {}, None, None, {"said": {"kind": "numeric"}}), source)
    assert set(model.facts["taken_as"].values()) == {"numbers"}


def test_states_follow_the_data_when_the_schema_is_kept():
    x = xor()
    table = pa.table({name: x[:, i] for i, name in enumerate("abc")})
    schema = learned(table).schema
    more = pa.concat_tables([table, pa.table({"a": [2, 2], "b": [0, 1], "c": [0, 1]})])
    again = drive(recipes.learner("orders", {}, None, Kept(schema)), Source.of_table(more))
    assert [attribute.values for attribute in again.schema.attributes] == [(0, 1, 2), (0, 1), (0, 1)]
    halves = pa.table({"a": [0.5, 1.0], "b": [0.0, 1.0], "c": [0.0, 1.0]})
    with pytest.raises(
        SchemaError,
        match=r"'a' was learned as states, which are whole numbers, but now has fractions. Train once without the",
    ):
        drive(recipes.learner("orders", {}, None, Kept(schema)), Source.of_table(halves))
    store = MemoryStore()
    drive(recipes.learner("orders", {}, None), [Part(Source.of_table(more), store)])
    stored = drive(recipes.learner("orders", {}, None, Kept(schema)), [Part(Source.of_table(more), store)])
    assert stored.schema == again.schema
    np.testing.assert_array_equal(stored.probabilities, again.probabilities)


def test_a_model_is_stored_and_read_again():
    for model in (learned(sensors()), learned(words()[0], max_parents=1)):
        header, arrays = model.to_arrays()
        mapped = {name: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape) for name, a in arrays.items()}
        again = load_model(header, mapped, is_trusted=False)
        assert json.loads(json.dumps(header["facts"])) == header["facts"]
        queries = [Edges(), Graph(), Graphs(n=20), Paths(), Score(edges=("a->b",)), Edges(absent=("a->d",))]
        assert again.answer(queries) == model.answer(queries)
        assert model_to_network_text(again, "n") == model_to_network_text(model, "n")
        assert again.structure() == model.structure()
        assert {name: table.num_rows for name, table in again.tables().items()}["edges"] == 12


def test_tables_tell_edges_and_graphs():
    model = learned(sensors())
    tables = model.tables()
    edges = tables["edges"].to_pylist()
    assert [edge["probability"] for edge in edges if edge["parent"] == "a"] == model.probabilities[0, 1:].tolist()
    best = {(edge["parent"], edge["child"]) for edge in edges if edge["is_in_best"]}
    assert best == {(parent, child) for parent, child, _ in model.best_edges()}
    first = [row for row in tables["graphs"].to_pylist() if row["rank"] == 1]
    assert {(row["parent"], row["child"]) for row in first} == best
    assert first[0]["log_score"] == pytest.approx(model.best.log_score)


def test_the_best_graph_is_exported():
    table, codes = words()
    model = learned(table, ess=2.0)
    network = parse_bif(model_to_network_text(model, "fewpass"))
    assert set(network.edges) == {f"{parent}->{child}" for parent, child, _ in model.best_edges()}
    parents = {node: [NAMES.index(p) for p in network.parents[name]] for node, name in enumerate(NAMES)}
    for node, name in enumerate(NAMES):
        for given, row in network.tables[name].items():
            values = [int(value[1:]) for value in given]
            match = np.all([codes[p] == v for p, v in zip(parents[node], values, strict=True)], axis=0)
            counts = np.bincount(codes[node][match] if values else codes[node], minlength=3)
            pseudo = 2.0 / 3 ** (len(values) + 1)
            assert row == pytest.approx((counts + pseudo) / (counts.sum() + 3 * pseudo))
    numbers = learned(sensors())
    gaussian = model_to_network_text(numbers, "fewpass")
    assert "type continuous;" in gaussian
    with pytest.raises(InvalidNetwork, match="is continuous, which only BIF and equations can hold"):
        model_to_network_text(numbers, "fewpass", "xdsl")
    equations = model_to_network_text(numbers, "fewpass", "sem")
    for node, own in enumerate(numbers.best.parents):
        (line,) = (line for line in equations.splitlines() if line.startswith(f"{NAMES[node]} = "))
        found = re.fullmatch(r"(-?[\d.]+)((?: [+-] [\d.]+\*\w+)*)\[([\d.]+)\]", line.partition(" = ")[2])
        at = {NAMES[parent]: 0.5 + parent for parent in own}
        terms = re.findall(r"([+-]) ([\d.]+)\*(\w+)", found[2])
        mean = float(found[1]) + sum(float(sign + weight) * at[name] for sign, weight, name in terms)
        told = best_graph_network(numbers).model().answer([Moments((NAMES[node],), at)])[0]
        assert told["moments"][NAMES[node]]["mean"] == pytest.approx(mean, rel=1e-9)
        assert told["moments"][NAMES[node]]["variance"] == pytest.approx(float(found[3]) ** 2, rel=1e-9)
    assert parse_bif(gaussian).edges == tuple(
        f"{a}->{b}" for a, b, _ in sorted(numbers.best_edges(), key=lambda e: e[1])
    )


def test_refreshing_reads_new_files_and_forgetting_subtracts(tmp_path):
    """What is stored of old files is added to, and subtracted from, bit for bit."""
    for make in (sensors, lambda n, seed: words(n, seed)[0]):
        for i in range(3):
            pq.write_table(make(50, seed=i), tmp_path / f"{i}.parquet")
        paths = [str(tmp_path / f"{i}.parquet") for i in range(3)]
        store, kept, accounts = MemoryStore(), None, []
        for chosen in (paths[:2], paths, paths[1:]):
            accounts.append([])
            parts = [Part(Source.open(chosen), store)]
            model = drive(recipes.learner("orders", {}, None, kept), parts, accounts=accounts[-1])
            kept = Kept(model.schema)
        assert [account.n_files_read for account in accounts[1]] == [1, 1]
        assert [account.n_files_read for account in accounts[2]] == [0, 0] or accounts[2][1].n_files_reused > 0
        fresh = drive(recipes.learner("orders", {}, None, model.schema), Source.open(paths[1:]))
        np.testing.assert_array_equal(fresh.probabilities, model.probabilities)


def test_the_estimator_tells_the_same(tmp_path):
    table = sensors()
    posterior = StructurePosterior(score="bge", method="auto").fit(table)
    model = learned(table)
    np.testing.assert_array_equal(posterior.edge_probabilities_, model.probabilities)
    assert posterior.coverage_ == EXACT
    assert posterior.feature_names_in_ == NAMES
    for own in (posterior, pickle.loads(pickle.dumps(posterior))):
        assert own.query(Graph(absent=("a->b",))) == model.answer([Graph(absent=("a->b",))])[0]
    graph = posterior.to_networkx()
    assert sorted(graph.nodes) == NAMES
    assert {(a, b, p["probability"]) for a, b, p in graph.edges(data=True)} == set(model.best_edges())
    text = posterior.to_network(tmp_path / "best.bif")
    assert (tmp_path / "best.bif").read_text() == text == model_to_network_text(model, "fewpass")
    pq.write_table(table, tmp_path / "x.parquet")
    from_file = StructurePosterior(edge_log_odds={"a->b": 1.0}).fit(str(tmp_path / "x.parquet"))
    np.testing.assert_array_equal(
        from_file.edge_probabilities_, learned(table, edge_log_odds={"a->b": 1.0}).probabilities
    )
    from_array = StructurePosterior().fit(np.stack([column.to_numpy() for column in table.columns], axis=1))
    np.testing.assert_allclose(from_array.edge_probabilities_, model.probabilities)


def test_constant_columns_are_left_out_all_with_their_reason():
    for table in (sensors(), words()[0]):
        same = table.slice(0, 1)["a"].to_pylist() * table.num_rows
        model, plain = learned(with_column(with_column(table, "e", same), "f", same)), learned(table)
        np.testing.assert_allclose(model.probabilities, plain.probabilities)
        assert sorted(model.facts["left_out"]) == ["e", "f"]
        assert all(reason.startswith("one value only") for reason in model.facts["left_out"].values())


def wide(n=400, d=70):
    """Numbers: x69 = x0 + x1 + noise, the others independent of all."""
    x = np.random.default_rng(8).normal(size=(n, d))
    x[:, 69] += x[:, 0] + x[:, 1]
    return pa.table({f"x{i}": x[:, i] for i in range(d)})


def test_of_too_many_columns_those_that_tell_most_are_kept(monkeypatch):
    """Beliefs about columns that are gone are no longer held, required edges keep theirs."""
    monkeypatch.setattr(coverage, "STEPS_AT_FIRST", 400)
    told = {"screen_for": ["x69"], "required": ["x5->x6"], "forbidden": [f"x69->x{i}" for i in range(69)]}
    model = learned(wide(), **told, sets=2000, draws=20, candidates=4)
    assert len(model.names) == 64
    assert {"x0", "x1", "x5", "x6", "x69"} <= set(model.names)
    (reason,) = {each.reason for each in model.schema.left_out}
    assert reason == "screened out: other columns have more information about 'x69'"
    edges = {(parent, child) for parent, child, p in model.best_edges() if p > 0.9}
    assert {("x0", "x69"), ("x1", "x69"), ("x5", "x6")} <= edges
    # A refresh keeps the columns.
    source = Source.of_table(wide(200))
    again = drive(recipes.learner("orders", told | {"candidates": 4, "sets": 2000}, None, Kept(model.schema)), source)
    assert again.names == model.names


def test_information_is_that_of_the_table_less_chance():
    """By its definition, from the table of a small case."""
    codes = np.random.default_rng(2).integers(0, 3, (2, 90))
    codes[1] = np.where(codes[1] == 2, codes[0], codes[1])
    table = pa.table({name: [f"{name}{v}" for v in own] for name, own in zip("ab", codes, strict=True)})
    schema = learned(table).schema
    counts = FamilyCounts(schema, [Family(1, (0,))])
    counts.update(Chunk(encode(table.to_batches()[0], schema).x, np.zeros(90, np.uint8)))
    assert corrected_mutual_information(counts, 0) == pytest.approx(mutual_information(*codes) - 4 / 180, rel=1e-12)
