"""What the benchmarks of circuits compute besides times."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from benchmarks import circuits_peers, density, density_auto, streaming
from benchmarks.circuits_peer_process import BERNOULLI, SUM, each_node
from benchmarks.measuring import keep, read_kept
from learners.circuits.evaluate import log_values
from learners.circuits.kernels import CATEGORICAL
from learners.circuits.structures import describe_variables, hclt, random_regions


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    first = rng.random((2, 400)) < 0.3
    return np.vstack([first, first ^ (rng.random((2, 400)) < 0.1)]).astype(np.uint8)


def of_sums(rows):
    """A DAG of sums, products and indicators."""
    return hclt(density.counts_of(rows), states=3, seed=1, as_sums=True)


def values_of(data, rows):
    """Log-likelihoods of the arrays that peers get, node by node."""

    def make(kind, variable, children, weights, p):
        if kind == BERNOULLI:
            return np.where(rows[variable] == 1, p, 1 - p)
        return np.tensordot(weights, children, axes=1) if kind == SUM else np.prod(children, axis=0)

    return np.log(each_node(data, make)[-1])


@pytest.mark.parametrize("literal", [True, False])
def test_peers_get_the_same_circuit(rows, literal):
    circuit = of_sums(rows)
    data = circuits_peers.translated(circuit, literal)
    assert np.allclose(values_of(data, rows), log_values(circuit, rows), atol=1e-12)
    assert (data["kind"].size == circuit.n_nodes) == literal


def test_missing_peer_says_so(tmp_path):
    with pytest.raises(circuits_peers.PeerMissing, match="nowhere"):
        circuits_peers.Peer("spflow", str(tmp_path / "nowhere"), tmp_path)


def test_peer_without_library_says_so(rows, tmp_path):
    path = tmp_path / "circuit.npz"
    np.savez(path, rows=rows.T.astype(float), **circuits_peers.translated(of_sums(rows)))
    with pytest.raises(circuits_peers.PeerMissing, match="spn"):
        circuits_peers.Peer("spflow", sys.executable, path)


@pytest.mark.parametrize("as_sums", [True, False])
def test_margins_of_the_leaves(rows, as_sums):
    ones = rows.mean(axis=1)
    margins = np.stack([1 - ones, ones], axis=1)
    variables = describe_variables(rows, [2] * 4)
    circuit = random_regions(variables, depth=1, sums=3, replicas=2, seed=0, as_sums=as_sums)
    at_margins = streaming.margin_pseudo_counts(circuit, margins, 0, 0.1)
    uniform = streaming.random_pseudo_counts(circuit, 0, 0.5 * 0.1, 1.5 * 0.1)
    if as_sums:
        ratio, others = at_margins.edge / np.where(uniform.edge > 0, uniform.edge, 1), at_margins.parameter
        chosen = ratio[(ratio > 0) & (ratio != 1)]
        assert not others.any()
    else:
        chosen = at_margins.parameter[uniform.parameter > 0] / uniform.parameter[uniform.parameter > 0]
        assert np.array_equal(at_margins.edge, uniform.edge)
        assert (circuit.kind == CATEGORICAL).sum() * 2 == chosen.size
    assert {round(x, 9) for x in chosen.tolist()} == {round(2 * x, 9) for x in margins.ravel().tolist()}


def test_ways_are_better_than_nothing(rows):
    circuit = of_sums(rows)
    all_rows = streaming.Rows(rows[:, :200], rows[:, 200:300], rows[:, 300:])
    floor = streaming.mean(density.independent(describe_variables(rows, [2] * 4)), all_rows.test)
    names = [name for name, _ in streaming.ways(circuit, all_rows, 0)]
    assert len(names) == len(set(names))
    run = dict(streaming.ways(circuit, all_rows, 0))["bmm, 1 pass, leaves from the margins"]
    found, scale = run()
    assert scale in streaming.SCALES
    assert streaming.mean(found, all_rows.test) > floor


def test_tables_between_marks(tmp_path, monkeypatch):
    monkeypatch.setattr(density, "RESULTS", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(f"before\n{density.MARK}old\n{density.MARK}after\n")
    density.write_page("page.md", "\n".join(density.table(["a", "b"], 1, [["x", "1"]])) + "\n")
    assert page.read_text() == f"before\n{density.MARK}| a | b |\n| --- | ---: |\n| x | 1 |\n{density.MARK}after\n"


def test_published_values_name_their_source():
    for each in density.published().values():
        assert each["source"]
        assert set(each["values"]) <= set(density.COMPLETE)


def test_the_search_is_measured_beside_fixed_and_published(monkeypatch, tmp_path):
    rows = np.random.default_rng(0).integers(0, 2, (4, 400)).astype(np.uint8)
    monkeypatch.setattr(density_auto, "rows_of", lambda name, split: rows)
    monkeypatch.setattr(density_auto, "RESULTS", tmp_path)
    monkeypatch.setattr(density_auto, "published", lambda: {"somebody": {"values": {"nltcs": -2.5}}})
    found = density_auto.found_on("nltcs", 0.0003, 1, 0)
    assert found.test == found.valid > -2.9 and found.tried[0]["name"] == found.chosen
    keep(tmp_path / "auto.json", [found])
    assert read_kept(tmp_path / "auto.json", density_auto.Found) == [found]
    assert "| -2.500 |" in density_auto.report([found])
