"""The default learner, as a user has it: trained, asked, explained, drawn, refreshed and made to forget."""

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from learners.ensembles.model import EnsembleModel
from learners.errors import InvalidParameter
from learners.models.query import Conditional, Map
from service import product
from service.requests.requests import ForgetRequest, TrainRequest
from tests.passes.test_statistic_reuse import write
from tests.service.asking import model_of
from tests.service.product.test_refresh import request_of

FEW = {"members": 2}


@pytest.fixture
def folder(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for day in range(3):
        write(data, day, n=90)
    return data


def ensemble(folder, **more):
    return request_of(folder, **({"learner": "auto", "parameters": FEW, "holdout": 0} | more))


def test_it_is_what_a_request_without_a_learner_gets():
    assert TrainRequest(uris=["x"], model="m").learner == "auto"


def test_rows_are_forgotten_and_that_is_proved(workspace, folder):
    product.train_model_version(workspace, ensemble(folder))
    done = product.forget_rows(workspace, ForgetRequest(model="daily", where="user = 3"))
    n_left = int(pc.sum(pc.not_equal(pq.read_table(folder)["user"], 3)).as_py())
    assert done["proofs"][0]["is_equal"] is True
    assert product.find_version(workspace, "daily@2").n_rows == n_left


def test_queries_are_answered_by_the_joint_member_and_say_so(workspace, folder):
    product.train_model_version(workspace, ensemble(folder))
    conditional, best = product.query_model(
        workspace, "daily", [Conditional(("x0",), {"class": "yes"}), Map(("class",), {"x0": "a"})]
    )
    assert conditional["member"] == best["member"] == "joint"
    assert sum(conditional["distributions"]["x0"].values()) == pytest.approx(1.0)


def test_members_are_drawn_one_by_one(workspace, folder):
    version = product.train_model_version(workspace, ensemble(folder))
    told = product.version_structure(workspace, "daily")
    assert len(told["members"]) == 2 and told["facts"]["choice"]
    assert product.version_structure(workspace, "daily", 1)["nodes"][0]["role"] == "class"
    assert product.draw_version_structure(workspace, "daily", 0).startswith(b"<svg")
    with pytest.raises(InvalidParameter, match="members 0 to 1"):
        product.version_structure(workspace, "daily", 7)
    model = model_of(version)
    assert isinstance(model, EnsembleModel) and model.joint.network.order
    product.train_model_version(workspace, request_of(folder, model="network", update=False))
    with pytest.raises(InvalidParameter, match="has no members"):
        product.version_structure(workspace, "network", 0)


def test_learners_that_cut_otherwise_keep_other_schemas(workspace, folder):
    """A network's update does not take the hundreds of cut points of an ensemble, nor the other way round."""
    many = model_of(product.train_model_version(workspace, ensemble(folder)))
    network = model_of(product.train_model_version(workspace, request_of(folder)))
    again = model_of(product.train_model_version(workspace, ensemble(folder)))
    n_cuts = [max(len(attribute.cuts) for attribute in model.schema.attributes) for model in (many, network, again)]
    assert n_cuts[0] == n_cuts[2] > 2 * n_cuts[1]
    assert np.array_equal(many.predict_proba(_one(many)), again.predict_proba(_one(again)))


def _one(model):
    from learners.schema.encoding.json_records import encode_json_records

    return encode_json_records([{"x0": "a", "number": 0.3}, {}], model.schema)
