"""The default learner, as a user has it: trained, asked, explained, drawn, refreshed and made to forget."""

import numpy as np
import pytest

from learners.ensembles import large
from learners.ensembles.model import EnsembleModel
from learners.errors import InvalidParameter
from learners.models.query import Conditional, Map
from learners.passes import memory
from learners.schema.encoding.json_records import encode_json_records
from service import product
from service.product import train_steps
from service.requests.requests import ForgetRequest, TrainRequest
from service.settings import Settings
from service.workspace import Workspace
from tests.service.asking import model_of
from tests.support.passes import days, same, write
from tests.support.product import n_left, request_of


@pytest.fixture
def folder(tmp_path):
    return days(tmp_path / "data", 3, n=90)


def ensemble(folder, **more):
    return request_of(folder, **({"learner": "auto", "parameters": {"members": 2}, "holdout": 0} | more))


def test_it_is_the_default_asked_drawn_and_forgets(workspace, folder):
    assert TrainRequest(uris=["x"], model="m").learner == "auto"
    model = model_of(product.train_model_version(workspace, ensemble(folder)))
    assert isinstance(model, EnsembleModel) and model.joint.network.order

    queries = [Conditional(("x0",), {"class": "yes"}), Map(("class",), {"x0": "a"})]
    conditional, best = product.query_model(workspace, "daily", queries)
    assert conditional["member"] == best["member"] == "joint"
    assert sum(conditional["distributions"]["x0"].values()) == pytest.approx(1.0)

    told = product.version_structure(workspace, "daily")
    assert len(told["members"]) == 2 and told["facts"]["choice"]
    assert product.version_structure(workspace, "daily", 1)["nodes"][0]["role"] == "class"
    assert product.draw_version_structure(workspace, "daily", 0).startswith(b"<svg")
    with pytest.raises(InvalidParameter, match="must be from 0 to 1, a member of the ensemble"):
        product.version_structure(workspace, "daily", 7)

    done = product.forget_rows(workspace, ForgetRequest(model="daily", where="user = 3"))
    assert done["proofs"][0]["is_equal"] is True
    assert product.find_version(workspace, "daily@2").n_rows == n_left(folder)


def test_learners_that_cut_otherwise_keep_other_schemas(workspace, folder):
    """A network's update does not take the hundreds of cut points of an ensemble, nor the other way round."""
    many = model_of(product.train_model_version(workspace, ensemble(folder)))
    network = model_of(product.train_model_version(workspace, request_of(folder)))
    with pytest.raises(InvalidParameter, match="has no members"):
        product.version_structure(workspace, "daily", 0)
    again = model_of(product.train_model_version(workspace, ensemble(folder)))
    n_cuts = [max(len(attribute.cuts) for attribute in model.schema.attributes) for model in (many, network, again)]
    assert n_cuts[0] == n_cuts[2] > 2 * n_cuts[1]
    row = encode_json_records([{"x0": "a", "number": 0.3}, {}], many.schema)
    assert np.array_equal(many.predict_proba(row), again.predict_proba(row)) and many.schema == again.schema


@pytest.fixture
def small_tables_are_large(monkeypatch):
    monkeypatch.setattr(large, "LARGE_ROWS", 60)


def with_memory(monkeypatch, n_bytes):
    """A machine that lets a model draw from so many bytes of memory."""
    monkeypatch.setattr(train_steps, "counts_memory_limit", lambda *_: n_bytes)
    monkeypatch.setattr(memory, "_limit", memory.MemoryLimit(n_bytes, memory.memory_limit().directory))


@pytest.mark.usefixtures("small_tables_are_large")
def test_a_refresh_and_a_proof_go_by_the_memory_that_decided(workspace, folder, tmp_path, monkeypatch):
    """The first machine draws some of 270 rows; the machines of later jobs have room for all, or for fewer."""
    asked = {"cuts": "fresh", "parameters": {"members": 2}}
    little, much = large.MEMORY_SHARE * 100 * 24, 1 << 30
    with_memory(monkeypatch, little)
    first = model_of(product.train_model_version(workspace, ensemble(folder, **asked)))
    n_drawn = first.facts["drawn_rows"]
    assert first.facts["parameters"]["memory"] == little and 60 <= n_drawn < 270

    write(folder, 3, n=90)
    with_memory(monkeypatch, much)
    second = model_of(product.train_model_version(workspace, ensemble(folder, **asked)))
    assert second.facts["n_rows"] == 360 and second.facts["drawn_rows"] == pytest.approx(n_drawn, abs=5)
    with_memory(monkeypatch, little)
    with Workspace(Settings(workspace=tmp_path / "other")) as other:
        scratch = product.train_model_version(other, ensemble(folder, **asked | {"update": False}))
        assert same(model_of(scratch), second), "as from scratch, by the memory of the first"

    with_memory(monkeypatch, much)
    done = product.forget_rows(workspace, ForgetRequest(model="daily", where="user = 3"))
    assert done["proofs"][0]["is_equal"] is True
    third = model_of(product.find_version(workspace, "daily@3"))
    assert third.facts["parameters"]["memory"] == little and third.facts["n_rows"] == n_left(folder)
    anew = ensemble(folder, **asked | {"model": "anew", "parameters": {"members": 2, "memory": much}})
    assert model_of(product.train_model_version(workspace, anew)).facts["drawn_rows"] == n_left(folder), (
        "the memory of a machine with room for all would have given other rows"
    )
