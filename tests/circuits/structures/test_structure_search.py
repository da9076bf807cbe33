"""The right circuit for some rows: mixtures, and the search over hidden trees."""

import numpy as np
import pyarrow as pa
import pytest

from learners import Source, drive, encode
from learners.circuits.evaluation.evaluate import log_values
from learners.circuits.parameters import CircuitParameters
from learners.circuits.structures.chow_liu import chow_liu
from learners.circuits.structures.random_regions import k_means_row_clusters, mixture_of_circuits
from learners.circuits.structures.structure_search import (
    EDGES_AT_ONCE,
    choose_circuit_structure,
    codes_and_domain_sizes,
    search_work_budget,
)
from learners.counts.pairwise import PairwiseCounts
from learners.errors import Cancelled, EmptyData, InvalidParameter
from learners.registry import recipes
from learners.schema import Attribute, Chunk, Schema

N = 6


def schema_of(n=N):
    return Schema(tuple(Attribute(f"v{i}", "nominal", ("0", "1")) for i in range(n)), None, ("",))


def rows_of(n_rows, seed):
    """Two groups, in each of which the columns hang together differently."""
    rng = np.random.default_rng(seed)
    group = rng.random(n_rows) < 0.5
    base = rng.random((N, n_rows)) < np.where(group, 0.8, 0.2)
    base[1] = np.where(group, base[0], ~base[0]) ^ (rng.random(n_rows) < 0.05)
    base[3] = base[2] ^ (rng.random(n_rows) < 0.1)
    return Chunk(base.astype(np.uint8), np.zeros(n_rows, np.uint8))


def pairs_of(rows):
    pairs = PairwiseCounts(schema_of(rows.x.shape[0]))
    pairs.update(rows)
    return pairs


def test_a_mixture_is_the_weighted_sum_of_its_parts():
    parts = [chow_liu(pairs_of(rows_of(200, seed))) for seed in range(3)]
    whole = mixture_of_circuits(parts, [1.0, 2.0, 5.0])
    x = rows_of(50, 9).x
    expected = sum(w / 8 * np.exp(log_values(part, x)) for w, part in zip([1, 2, 5], parts, strict=True))
    np.testing.assert_allclose(np.exp(log_values(whole, x)), expected, rtol=1e-12)
    assert whole.n_nodes == 1 + sum(part.n_nodes for part in parts)
    with pytest.raises(InvalidParameter, match="one circuit or more"):
        mixture_of_circuits([], [])
    with pytest.raises(InvalidParameter, match="same variables"):
        mixture_of_circuits([parts[0], chow_liu(pairs_of(Chunk(x[:2], np.zeros(50, np.uint8))))], [1, 1])


def test_clusters_find_the_groups_and_repeat():
    rng = np.random.default_rng(0)
    group = rng.random(400) < 0.5
    x = (rng.random((10, 400)) < np.where(group, 0.9, 0.1)).astype(np.int64)
    found = k_means_row_clusters(x, [2] * 10, 2, seed=1)
    assert max(np.mean(found == group), np.mean(found != group)) > 0.95
    np.testing.assert_array_equal(found, k_means_row_clusters(x, [2] * 10, 2, seed=1))


def test_the_search_finds_the_groups_and_does_not_depend_on_threads():
    fit, valid = rows_of(3000, 6), rows_of(600, 7)
    shares = []
    one, two = (
        choose_circuit_structure(schema_of(), fit, valid, minutes=0.006, threads=threads, report=report)
        for threads, report in ((1, lambda share, _: shares.append(share)), (2, lambda *_: None))
    )
    assert one.circuit == two.circuit and one.tried == two.tried
    values = [each.valid for each in one.tried if not np.isnan(each.valid)]
    tree = next(each for each in one.tried if each.name == "Chow-Liu tree")
    assert values == sorted(values, reverse=True) and values[0] > tree.valid + 0.05
    assert float(log_values(one.circuit, valid.x).mean()) == pytest.approx(values[0], abs=1e-4)
    assert {each.how for each in one.tried} <= {"ended", "out of work", "too large"}
    assert shares and all(0 <= share <= 1 for share in shares)
    spent = sum(each.n_passes * each.n_edges * 3000.0 for each in one.tried)
    assert spent <= search_work_budget(0.006) * EDGES_AT_ONCE


def test_passes_over_all_rows_fit_the_rows_to_choose_by_too():
    fit, valid = rows_of(600, 6), rows_of(200, 7)
    alone, with_all = (choose_circuit_structure(schema_of(), fit, valid, passes_of_all=n) for n in (0, 2))
    assert [each.valid for each in alone.tried] == [each.valid for each in with_all.tried]
    before, after = (float(log_values(each.circuit, valid.x).mean()) for each in (alone, with_all))
    assert alone.tried[0].valid == pytest.approx(before, abs=1e-4) and after > before


def test_the_size_is_limited_where_passes_over_the_table_follow():
    fit, valid = rows_of(1000, 6), rows_of(100, 7)
    streamed, drawn = (
        choose_circuit_structure(schema_of(), fit, valid, minutes=3e-4, passes_of_all=n, states=(4, 16)).tried
        for n in (0, 2)
    )
    assert {each.name for each in streamed if each.how == "too large"} >= {"hidden tree of 16 states"}
    assert not any(each.how == "too large" for each in drawn)


def test_what_would_take_too_much_is_left_out_and_told():
    fit, valid = rows_of(1000, 6), rows_of(100, 7)
    found = choose_circuit_structure(schema_of(), fit, valid, minutes=2e-5)
    left = {each.name: each.how for each in found.tried if np.isnan(each.valid)}
    assert left["mixture of 4 hidden trees of 4 states"] == "too large" and "Chow-Liu tree" not in left
    little = choose_circuit_structure(schema_of(), fit, valid, minutes=2e-5, passes_of_all=2)
    left = {each.name: each.how for each in little.tried if np.isnan(each.valid)}
    assert left == {"hidden tree of 4 states": "out of work", "mixture of 4 hidden trees of 4 states": "out of work"}
    assert little.circuit == chow_liu(pairs_of(fit))
    with pytest.raises(InvalidParameter, match="minutes"):
        choose_circuit_structure(schema_of(), fit, valid, minutes=0)
    with pytest.raises(EmptyData, match="too few rows"):
        choose_circuit_structure(schema_of(), fit, valid.rows(slice(0)), minutes=1)

    def stop(_share, _note):
        raise Cancelled("enough")

    with pytest.raises(Cancelled, match="enough"):
        choose_circuit_structure(schema_of(), fit, valid, minutes=1, report=stop)


def test_codes_leave_missing_out_and_have_the_class_last():
    attribute = Attribute("v", "nominal", ("a", "b"), has_missing=True)
    schema = Schema((attribute,), "y", ("n", "p"))
    codes, sizes = codes_and_domain_sizes(schema, np.array([[0, 1, 2]], np.uint8), np.array([1, 0, 1], np.uint8))
    assert codes.tolist() == [[-1, 0, 1], [1, 0, 1]] and sizes == [2, 2]


def table_of(n_rows, seed=1):
    rows = rows_of(n_rows, seed)
    rng = np.random.default_rng(seed)
    columns = {f"v{i}": pa.array(rows.x[i], mask=rng.random(n_rows) < 0.02) for i in range(N)}
    return pa.table(columns | {"number": rng.normal(rows.x[0] * 3.0, 1.0)})


def test_auto_is_the_default_of_em_and_tells_what_it_tried():
    table = table_of(1500)
    model = drive(recipes.learner("spn", {"minutes": 0.003}, None), Source.of_table(table))
    search = model.facts["search"]
    assert search["tried"][0]["valid"] >= search["tried"][1]["valid"] and model.facts["n_rows"] == 1500
    assert model.structure()["facts"]["search"] == search
    plain = drive(recipes.learner("spn", {"structure": "chow-liu"}, None), Source.of_table(table))
    rows = encode(table_of(500, 2), model.schema)
    assert model.log_likelihood(rows).mean() > plain.log_likelihood(rows).mean() + 0.03
    few = drive(recipes.learner("spn", {}, None), Source.of_table(table_of(30)))
    assert few.facts["search"]["tried"][0]["how"] == "too few rows to choose a circuit"


def test_auto_with_numbers_and_a_class():
    table = table_of(800).append_column("class", pa.array(np.where(np.arange(800) % 3 == 0, "a", "b")))
    asked = {"minutes": 0.0015, "leaves": "gaussian", "passes": 3}
    model = drive(recipes.learner("spn", asked, "class"), Source.of_table(table))
    place = [attribute.name for attribute in model.schema.attributes].index("number")
    assert model.circuit.n_values[place] == 0 and model.facts["em_passes"] <= 3
    assert model.predict_proba(encode(table, model.schema)).shape == (800, 2)


def test_what_auto_means():
    assert CircuitParameters().actual_structure == "auto"
    assert CircuitParameters(states=4).actual_structure == CircuitParameters(learning="bmm").actual_structure == "hclt"
    assert CircuitParameters(structure="learnspn").actual_structure == "learnspn"
    with pytest.raises(InvalidParameter, match="minutes"):
        CircuitParameters(minutes=0)
