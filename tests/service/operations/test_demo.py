"""The demo from beginning to end, and the truth of its known network."""

import itertools
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from service.cli import app
from service.operations import demo
from service.operations.bench import KnownNetwork, write_synthetic_parquet
from service.operations.demo import train_demo_xgboost
from service.operations.demo_orders import write_orders
from service.operations.precompile import DEMO
from tests.naive.known_networks import posterior
from tests.service import forks


@pytest.mark.timeout(900)
def test_demo_learns_refreshes_forgets_and_answers(tmp_path, monkeypatch):
    compiled: list[object] = []
    monkeypatch.setattr(demo, "precompile_in_processes", lambda _, tasks: compiled.extend(tasks))
    monkeypatch.setattr(demo, "local_server", forks.local_server)
    done = CliRunner().invoke(app, ["demo", "--rows", "10000", "--json", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert compiled == list(DEMO)
    orders = json.loads(done.stdout)
    assert (orders["n_train"], orders["n_columns"], orders["memory"]) == (10_000, 14, "64MiB")
    for model in orders["models"]:
        # Nothing beats the true probabilities by more than the noise of 1,000 rows.
        assert orders["least_losses"]["log_loss"] - 0.05 < model["metrics"]["log_loss"] < 0.7
        assert model["cpu_s"] > 0 and model["peak_bytes"] > model["loaded_bytes"] > 1 << 20
    assert [model["learner"] for model in orders["models"]] == ["kDB-2", "auto", "XGBoost"]
    refresh, forget, requests = orders["refresh"], orders["forget"], orders["requests"]
    expected = {"version": 2, "n_rows": 10_500, "n_rows_read": 500, "n_rows_reused": 10_000}
    assert expected.items() <= refresh.items()
    assert forget["version"] == 3 and forget["is_equal"] and forget["where"].startswith("user = '")
    assert forget["n_rows"] > 0 and forget["n_rows"] + forget["n_rows_left"] == 10_500
    low, high = requests["interval"]
    assert 0 < low < requests["probability"] < high < 1
    assert requests["n_requests"] == 200 and requests["median_ms"] <= requests["p99_ms"]
    assert "<svg" in (tmp_path / "orders-structure.svg").read_text()
    assert json.loads((tmp_path / "results.json").read_text()) == orders


def test_orders_are_those_of_the_true_probabilities_and_equal_for_equal_seeds(tmp_path):
    orders = write_orders(tmp_path / "a", 20_000, 3)
    weeks = [pq.read_table(path) for path in orders.train]
    assert [week.num_rows for week in weeks] == [4_000] * 5
    assert orders.n_bytes == pytest.approx(sum(week.nbytes for week in weeks), rel=0.02)  # bit masks come and go
    later = pq.read_table(orders.test)
    assert later.num_rows == orders.n_test == orders.late_shares.size
    assert pq.read_table(orders.tomorrow).num_rows == orders.n_tomorrow
    late = later["late"].to_numpy(zero_copy_only=False) == "yes"
    noise = np.sqrt((orders.late_shares * (1 - orders.late_shares)).sum())
    assert abs(late.sum() - orders.late_shares.sum()) < 5 * noise
    is_probable = orders.late_shares > np.median(orders.late_shares)
    assert late[is_probable].mean() > 1.5 * late[~is_probable].mean()
    times = [table["ordered_at"].to_numpy() for table in (*weeks, pq.read_table(orders.tomorrow), later)]
    assert np.all(np.diff(np.concatenate(times).astype(np.int64)) >= 0), "in the sequence of their times"
    assert later["weight_kg"].null_count > 0 and len(set(weeks[0]["user"].to_pylist())) > 500
    again = write_orders(tmp_path / "b", 20_000, 3)
    other = write_orders(tmp_path / "c", 20_000, 4)
    assert pq.read_table(again.test).equals(later) and not pq.read_table(other.test).equals(later)


def test_the_peer_of_the_demo_learns_and_answers_for_unknown_words(tmp_path):
    def write(name, words, n):
        rng = np.random.default_rng(n)
        word = rng.choice(words, n)
        is_late = np.where(word == "snow", "yes", "no")
        table = pa.table({"word": word, "number": rng.random(n), "class": is_late})
        pq.write_table(table, tmp_path / name)
        return str(tmp_path / name)

    train, test = write("train", ["rain", "snow"], 500), write("test", ["rain", "snow", "hail"], 60)
    cost, probabilities = train_demo_xgboost([train], test, "class", 0.0)
    assert cost.cpu_s > 0 and probabilities.shape == (60, 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    words = pq.read_table(test)["word"].to_numpy(zero_copy_only=False)
    assert probabilities[words == "snow", 1].min() > 0.9 > 0.1 > probabilities[words == "rain", 1].max()


def test_posterior_of_the_known_network_is_that_of_its_joint_distribution():
    network = KnownNetwork.random(n_attributes=3, n_values=2, n_classes=3, n_parents=2, seed=4)
    rows = np.array(list(itertools.product(range(2), repeat=3)), np.uint8).T
    joint = np.zeros((rows.shape[1], 3))
    for number, row in enumerate(rows.T):
        for label in range(3):
            joint[number, label] = network.prior[label]
            for i, parents in enumerate(network.parents):
                joint[number, label] *= network.tables[i][(label, *row[list(parents)], row[i])]
    assert joint.sum() == pytest.approx(1)
    np.testing.assert_allclose(posterior(network, rows), joint / joint.sum(axis=1, keepdims=True))
    x, y = network.draw(200_000, np.random.default_rng(0))
    drawn = np.bincount((x[0] * 4 + x[1] * 2 + x[2]) * 3 + y, minlength=24).reshape(8, 3) / 200_000
    np.testing.assert_allclose(drawn, joint, atol=5 * np.sqrt(0.25 / 200_000))  # five standard deviations


def test_a_table_of_the_known_network_has_the_promised_rows(tmp_path):
    write_synthetic_parquet(tmp_path / "known.parquet", 1_500, seed=1)
    table = pq.read_table(tmp_path / "known.parquet")
    assert table.num_rows == 1_500 and set(table["class"].to_pylist()) == {"no", "yes"}
