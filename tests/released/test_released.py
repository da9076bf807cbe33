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

import fewpass
from fewpass.estimators import estimator_of
from learners.errors import InvalidParameter
from learners.models.query import Edges
from learners.passes.learner import Learner, drive
from learners.passes.sources.source import Source
from learners.registry.model_kinds import kind_of
from service import product
from service.operations.doctor import run_doctor_checks
from service.product.versions.fitted_models import load_registered_model
from service.product.versions.learned_rows import LearnedRows
from service.requests.recorded import current_request
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


@every_learner
def test_chains_go_on_where_sampling_was_a_way_of_learning(released, workspace):
    """Until 0.2.0 the learner gibbs was `learning="gibbs"` of spn."""
    before = load_registered_model(workspace, "gibbs")
    assert (before.learner, before.parameters["learning"]) == ("spn", "gibbs")
    assert type(estimator_of(before)) is fewpass.CircuitPosterior
    assert LearnedRows.of(product.find_version(workspace, "gibbs")).known_files
    files = [str(released / "data" / f"day{day}.parquet") for day in (1, 2, 3)]
    recorded = {
        "uris": files, "target": "income", "learner": "spn", "model": "gibbs", "update": True,
        "parameters": {"learning": "gibbs", "iterations": 20, "draws": 4},
    }  # fmt: skip
    with pytest.raises(InvalidParameter, match="train with learner gibbs"):
        product.train_model_version(workspace, TrainRequest(**recorded))
    version, passes = product.train_and_report_passes(workspace, TrainRequest(**current_request(recorded)))
    assert version.learner == "gibbs" and version.parameters == {"iterations": 20, "draws": 4}
    assert "a file of the last training was removed or changed" in passes[0]["stage"], "not the parameters: files moved"
    resumption = kind_of(before.model).resume(before.model)
    after = drive(Learner("gibbs", resumption.recipe(), 1), Source.open(files))
    assert before.model.facts["n_rows"] < after.facts["n_rows"] == 1200


def test_requests_are_read_by_the_names_of_now():
    sampled = {
        "learner": "spn",
        "parameters": {"learning": "gibbs", "structure": "auto", "draws": 4, "sampler": "lazy"},
    }
    now = {"learner": "gibbs", "parameters": {"structure": "auto", "draws": 4}}
    assert current_request(sampled | {"kind": "train"}) == now | {"kind": "train"}
    assert current_request({"kind": "refresh", "train": sampled}) == {"kind": "refresh", "train": now}
    network = {"learner": "spn", "parameters": {"learning": "adf", "children": 2, "strength": 3.0}}
    assert current_request(network)["parameters"] == {"learning": "adf", "strength": 3.0}


@pytest.mark.parametrize("path", sorted(Path(__file__).parent.glob("*.pickles.xz")), ids=lambda path: path.name)
def test_pickled_estimators_open_and_answer_the_same(path):
    """With what they said of three rows."""
    rows, kept = pickle.loads(lzma.decompress(path.read_bytes()))
    for name, (pickled, answers) in kept.items():
        np.testing.assert_allclose(pickle.loads(pickled).predict_proba(rows), answers, atol=1e-9, err_msg=name)
