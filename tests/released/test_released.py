"""Workspaces that earlier releases wrote: this one opens them, answers the same, and goes on with them.

`make.py` makes what is kept of a release. An archive holds `workspace/`, the rows `data/` it was trained on, and `answers.json`: rows, and what each model said of them.
"""

import json
import lzma
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest

from learners.models.query import Edges
from service import product
from service.operations.doctor import run_doctor_checks
from service.requests.requests import TrainRequest
from service.settings import Settings
from service.workspace import Workspace
from storage.datasets.statistics import StatisticStore

RELEASES = sorted(Path(__file__).parent.glob("*.tar.xz"))
WITH_EVERY_LEARNER = [path for path in RELEASES if path.name != "0.1.0.tar.xz"]  # which has naive Bayes and kDB alone


def name_of(path):
    return path.name.removesuffix(".tar.xz")


every_learner = pytest.mark.parametrize("released", WITH_EVERY_LEARNER, ids=name_of, indirect=True)


@pytest.fixture(scope="module", params=RELEASES, ids=name_of)
def released(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("released")
    with tarfile.open(request.param) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def workspace(released):
    with Workspace(Settings(workspace=released / "workspace")) as opened:
        yield opened


def test_the_doctor_finds_nothing_wrong(released, workspace):
    found = run_doctor_checks(Settings(workspace=released / "workspace"))
    assert found and not [finding for finding in found if finding.state == "failed"]


def test_every_model_says_what_it_said(released, workspace):
    kept = json.loads((released / "answers.json").read_text())
    assert len(kept["answers"]) >= 2
    for name, answers in kept["answers"].items():
        model = product.load_served_model(workspace, name)
        now = [model.classify(row) for row in kept["rows"]]
        np.testing.assert_allclose(now, answers, atol=1e-9, err_msg=name)


@every_learner
def test_posteriors_and_densities_answer(workspace):
    (edges,) = product.query_model(workspace, "structures", [Edges()])
    assert edges["edges"]
    assert product.load_served_model(workspace, "density").model.schema.n_attributes == 4


@every_learner
def test_every_statistic_is_read(released):
    folders = list((released / "workspace").glob("**/statistics"))
    entries = [(StatisticStore(folder), entry.key) for folder in folders for entry in StatisticStore(folder).entries()]
    assert entries
    for store, key in entries:
        table = store.get(key)
        assert table is not None and table.num_rows > 0


@every_learner
@pytest.mark.parametrize("name", ["kdb-daily", "auto-daily"])
def test_an_update_goes_on_with_the_kept_schema(released, workspace, name):
    files = [str(released / "data" / f"day{day}.parquet") for day in (1, 2, 3)]
    before = product.load_served_model(workspace, name)
    request = TrainRequest(
        uris=files, target="income", learner=before.learner, parameters={"members": 2} if before.learner == "auto" else {"k": 2},
        model=name, holdout=0, update=True, cuts="kept",
    )  # fmt: skip
    version, passes = product.train_and_report_passes(workspace, request)
    assert version.version == 2 and {one["n_rows_read"] for one in passes} <= {800, 1200}, "new files alone, or all"
    after = product.load_served_model(workspace, f"{name}@2")
    assert [a.cuts for a in after.schema.attributes] == [a.cuts for a in before.schema.attributes]


@pytest.mark.parametrize("path", sorted(Path(__file__).parent.glob("*.pickles.xz")), ids=lambda path: path.name)
def test_pickled_estimators_open_and_answer_the_same(path):
    """With what they said of three rows."""
    rows, kept = pickle.loads(lzma.decompress(path.read_bytes()))
    for name, (pickled, answers) in kept.items():
        np.testing.assert_allclose(pickle.loads(pickled).predict_proba(rows), answers, atol=1e-9, err_msg=name)
