"""The demo from beginning to end, and the truth of its known network."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from service.operations.demo import _thousands
from service.operations.demo_data import KnownNetwork, write_real, write_synthetic


@pytest.mark.timeout(900)
def test_demo_on_a_known_network_comes_near_the_bayes_error(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "service.cli", "demo", "--rows", "20000", "--json", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    (table,) = json.loads(done.stdout)["tables"]
    models = {model["learner"]: model for model in table["models"]}
    assert list(models) == ["NB", "TAN", "XGBoost", "kDB-2", "kDB-2 HDP"]
    for model in models.values():
        # No classifier beats the Bayes error by more than the noise of the test sample.
        assert table["bayes_error"] - 0.02 < model["metrics"]["zero_one_loss"] < 0.5
        assert model["latency_ms"] > 0 and model["rows_per_s"] > 0
    assert models["kDB-2"]["metrics"]["log_loss"] < models["NB"]["metrics"]["log_loss"]
    for name in ("known-network-structure.svg", "known-network-reliability.svg"):
        assert "<svg" in (tmp_path / name).read_text()
    assert json.loads((tmp_path / "results.json").read_text())["tables"] == [table]


def test_posterior_of_the_known_network_is_that_of_its_joint_distribution() -> None:
    network = KnownNetwork.random(n_attributes=3, n_values=2, n_classes=3, n_parents=2, seed=4)
    rows = np.array(list(itertools.product(range(2), repeat=3)), np.uint8).T
    joint = np.zeros((rows.shape[1], 3))
    for number, row in enumerate(rows.T):
        for label in range(3):
            joint[number, label] = network.prior[label]
            for i, parents in enumerate(network.parents):
                joint[number, label] *= network.tables[i][(label, *row[list(parents)], row[i])]
    assert joint.sum() == pytest.approx(1)
    np.testing.assert_allclose(network.posterior(rows), joint / joint.sum(axis=1, keepdims=True))
    x, y = network.draw(200_000, np.random.default_rng(0))
    drawn = np.bincount((x[0] * 4 + x[1] * 2 + x[2]) * 3 + y, minlength=24).reshape(8, 3) / 200_000
    np.testing.assert_allclose(drawn, joint, atol=5 * np.sqrt(0.25 / 200_000))  # five standard deviations


def test_demo_tables_have_the_promised_rows(tmp_path: Path) -> None:
    synthetic = write_synthetic(tmp_path / "known", 1_500, seed=1)
    tables = [*write_real(tmp_path, seed=1), synthetic]
    for table in tables:
        assert pq.ParquetFile(table.train).metadata.num_rows == table.n_train
        assert pq.ParquetFile(table.test).metadata.num_rows == table.n_test
        assert table.target in pq.read_schema(table.train).names
    assert 0 < synthetic.bayes_error < 0.5


def test_slow_rates_are_not_rounded_to_nothing() -> None:
    assert [_thousands(n) for n in (2_345_678, 23_456, 2_345, 345)] == ["2,346 k", "23 k", "2.3 k", "0.34 k"]
