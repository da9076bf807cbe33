"""Every verb on every kind of model: an answer, or one sentence that says what the kind cannot do."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient

from learners import Source, drive
from learners.errors import LearnerError
from learners.models.estimation import Average
from learners.models.explanation import explain
from learners.models.query import Conditional, Edges, Map, Marginal
from learners.models.record_classifier import record_classifier
from learners.monitoring.count_layout import Watched
from learners.orders.formats.network_tables import Equation, Network
from learners.registry import recipes
from learners.registry.discrete_networks import model_to_network_text, network_model
from learners.registry.importance import column_importances
from learners.registry.kind import Cannot
from learners.registry.model_kinds import KINDS, kind_of, load_model
from learners.registry.sql.script import sql_script
from learners.schema.encoding.encode import encode
from service.http.app import create_app
from service.product.inference.queries import answer_model_queries
from service.product.inference.query_checks import check_queries
from service.product.inference.scoring import measure_model
from service.product.inference.what_if_answers import PARTS, WhatIfRequest, answer_what_if
from service.product.train_steps import trained_model_warnings
from service.product.versions.export_import import model_refusal_reason
from service.product.views.circuit_export import export_model_circuit, posterior_graph_circuit
from service.product.views.regions import region_graph
from service.product.views.version_views import model_family_table, model_structure
from service.serving.predictor import Served, warm_up_served_model
from service.settings import Settings
from service.workspace import Workspace
from tests.registry.gaussian_naive_bayes import GAUSSIAN_NAIVE_BAYES, GAUSSIAN_NB
from tests.service.asking import learned

GAUSSIAN = GAUSSIAN_NAIVE_BAYES.name
RANDOM = np.random.default_rng(7)
CLASSES = RANDOM.permutation(["no", "yes"] * 120)
NUMBER = (CLASSES == "yes") + RANDOM.normal(size=240)
WORD = np.where(RANDOM.random(240) < 0.8, CLASSES, "maybe")
TABLE = pa.table({"word": WORD, "number": NUMBER, "class": CLASSES})
SAMPLING = {"iterations": 4, "draws": 4}
TRAINED = {
    "lookup": ("kdb", {"k": 1, "estimator": "hdp-map"}, "class"),
    "averaged-trees": ("tan", {"average": True}, "class"),
    "ensemble": ("auto", {}, "class"),
    "boosted-trees": ("xgboost", {"rounds": 2}, "class"),
    "circuit": ("spn", {"structure": "chow-liu"}, "class"),
    "bayesian circuit": ("gibbs", SAMPLING, "class"),
    "gaussian mixture": ("spn", {"structure": "gaussian-mixture", "states": 2}, "class"),
    "orders": ("orders", {}, None),
    GAUSSIAN: ("gaussian-nb", {}, "class"),
}
PARENTS = {"word": (), "number": ("word",)}
SHARES = {("a",): (0.5, 0.5), ("b",): (0.1, 0.9)}
WORDS = {"word": ("a", "b"), "number": ("1", "2")}
IMPORTED = {
    "network": Network(WORDS, PARENTS, {"word": {(): (0.25, 0.75)}, "number": SHARES}),
    "linear network": Network(
        dict.fromkeys(PARENTS, ()), PARENTS, {}, {"word": Equation(0.0, (), 1.0), "number": Equation(1.0, (2.0,), 1.0)}
    ),
}
ROWS = {
    "network": pa.table({"word": ["a", "b"], "number": ["1", "2"]}),
    "linear network": pa.table({"word": [0.5, 1.5], "number": [1.0, 4.5]}),
}
KNOWN = [*KINDS, GAUSSIAN]


@pytest.fixture(scope="module", autouse=True)
def registered():
    """One line of registration for the kind, and one for its learner."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(KINDS, GAUSSIAN, GAUSSIAN_NAIVE_BAYES)
        patch.setitem(recipes.LEARNERS, "gaussian-nb", GAUSSIAN_NB)
        yield


@pytest.fixture(scope="module")
def models(registered):
    made = {kind: network_model(network) for kind, network in IMPORTED.items()}
    for kind, (learner, parameters, target) in TRAINED.items():
        rows = TABLE if target else TABLE.select(["word", "class"])
        made[kind] = drive(recipes.learner(learner, parameters, target), Source.of_table(rows))
    return {kind: load_model(*model.to_arrays()) for kind, model in made.items()}


def chunk_of(model):
    return encode(TABLE.slice(0, 5), model.schema, with_class=False)


def served(model):
    return Served("m", 1, "learner", "0" * 64, model, record_classifier(model), lambda n: None)


def what_if(model):
    answer = answer_what_if(served(model), WhatIfRequest())
    assert answer["parts"].keys() | answer["absent"].keys() == set(PARTS)
    for sentence in answer["absent"].values():
        assert is_one_sentence(sentence), sentence
    return answer["kind"]


def query(*queries):
    def ask(model):
        check_queries(model, queries)
        return answer_model_queries(model, queries)

    return ask


def first_name(model):
    return model.schema.attributes[0].name


VERBS = {
    "predict": lambda model: model.predict_proba(chunk_of(model)),
    "classify": lambda model: record_classifier(model)({}),
    "explain": lambda model: explain(model, chunk_of(model)).contributions,
    "intervals": lambda model: model.credible_intervals(chunk_of(model), 0.9),
    "evaluate": lambda model: measure_model(model, Source.of_table(ROWS.get(model.kind, TABLE))).metrics,
    "marginal": query(Marginal({})),
    "conditional": query(Conditional()),
    "map": query(Map(time_limit_s=0.1)),
    "intervention": lambda model: query(Marginal({}, do={first_name(model): a_value(model)}))(model),
    "average": query(Marginal({}, graph=Average(n=4))),
    "edges": query(Edges()),
    "what-if": what_if,
    "importance": lambda model: column_importances(model, [first_name(model)]),
    "sql": lambda model: sql_script(model, name="answers", table="rows"),
    "network": lambda model: model_to_network_text(model, "net"),
    "circuit": lambda model: export_model_circuit(model, "json"),
    "regions": region_graph,
    "graph circuit": posterior_graph_circuit,
    "structure": lambda model: model_structure(model, None),
    "member": lambda model: model_structure(model, 0),
    "graph": lambda model: kind_of(model).graph(model),
    "family": lambda model: model_family_table(model, first_name(model)),
    "trace": lambda model: kind_of(model).trace(model),
    "drift": lambda model: Watched(model).facts(),
    "warnings": trained_model_warnings,
    "warm-up": lambda model: warm_up_served_model(served(model)) or True,
    "store": lambda model: model.tables(),
    "import": lambda model: model_refusal_reason(*model.to_arrays()) == "" or [],
}
CLASSIFIERS = set(TRAINED) - {"orders"}
CIRCUITS = {"circuit", "bayesian circuit", "gaussian mixture", "network", "linear network"}
NETWORKS = {"lookup", "ensemble", "network", "linear network"}
JOINT = {*CIRCUITS, *NETWORKS, "orders"}
# The kinds that answer a verb, where not all do.
CAN = {
    "predict": CLASSIFIERS,
    "classify": CLASSIFIERS,
    "explain": CLASSIFIERS,
    "intervals": {"lookup", "ensemble", "bayesian circuit"},
    "marginal": JOINT,
    "conditional": JOINT - {"linear network"},
    "map": JOINT - {"linear network"},
    "intervention": {*NETWORKS, "orders"},
    "average": {"orders"},
    "edges": {"orders"},
    "graph circuit": {"orders"},
    "importance": CLASSIFIERS - {GAUSSIAN},
    "sql": {"lookup", "ensemble"},
    "network": {*NETWORKS, "orders"},
    "circuit": JOINT - {"gaussian mixture", "linear network"},
    "regions": JOINT - {"gaussian mixture", "linear network"},
    "member": {"ensemble"},
    "graph": set(KNOWN) - (CIRCUITS - NETWORKS),
    "family": {"lookup", "ensemble"},
    "trace": {"bayesian circuit"},
}


def a_value(model):
    attribute = model.joint.schema.attributes[0]
    return attribute.values[0] if attribute.kind == "nominal" else 0.5


def is_one_sentence(text):
    """Something to read, not the words of a Python error; it may say in a second one what helps."""
    return text[0].isupper() and text.endswith(".") and "object has no attribute" not in text and len(text) < 400


def test_every_kind_has_a_model_here():
    assert {*TRAINED, *IMPORTED} == set(KNOWN)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", KNOWN)
def test_a_verb_answers_or_says_why_not(models, kind, verb):
    model = models[kind]
    assert model.kind == kind
    if kind in CAN.get(verb, KNOWN):
        answer = VERBS[verb](model)
        assert answer is not None and (verb == "warnings" or len(np.atleast_1d(answer)))
    else:
        with pytest.raises(LearnerError, match=r"\.$") as refusal:
            VERBS[verb](model)
        assert is_one_sentence(str(refusal.value)), refusal.value


@pytest.mark.parametrize("kind", KNOWN)
def test_what_a_kind_lacks_is_a_sentence(kind):
    lacking = [name for name, value in vars(KINDS[kind]).items() if isinstance(value, Cannot)]
    assert lacking, "no kind can do everything"
    for capability in lacking:
        assert not KINDS[kind].can(capability)
        assert is_one_sentence(KINDS[kind].cannot(capability))


def test_a_model_without_a_kind_says_so(models):
    model = models[GAUSSIAN]
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(KINDS, GAUSSIAN)
        with pytest.raises(LearnerError, match="'gaussian naive bayes' are not in the table of kinds"):
            kind_of(model)
        with pytest.raises(LearnerError, match="needs another version of fewpass"):
            load_model(*model.to_arrays())


def test_a_new_kind_is_trained_evaluated_and_served(tmp_path):
    """One file and two lines of registration: train, publish, predict, explain and refuse, through the service."""
    pq.write_table(TABLE, tmp_path / "rows.parquet")
    settings = Settings(workspace=tmp_path / "workspace", warm_up=False)
    with Workspace(settings) as workspace:
        version = learned(workspace, tmp_path / "rows.parquet", "bell", "gaussian-nb", holdout=0.3)
        assert version.metrics["zero_one_loss"] < 0.45
    with TestClient(create_app(settings), base_url="http://localhost") as client:
        ask = {"records": [{"number": 4.0}, {"number": -3.0}, {}]}
        answer = client.post("/v1/models/bell/predict", json=ask).json()
        assert answer["predictions"][:2] == ["yes", "no"]
        np.testing.assert_allclose(np.sum(answer["probabilities"], axis=1), 1.0)
        why = client.post("/v1/models/bell/explain", json=ask).json()["explanations"]
        assert why[0]["contributions"]["number"] == pytest.approx(why[0]["log_odds"] - why[0]["prior"])
        assert "<svg" in client.get("/v1/models/bell/structure.svg").text
        assert client.get("/console/models/bell/graph").status_code == 200
        refused = client.post("/v1/models/bell/query", json={"queries": [{"kind": "marginal"}]})
        assert refused.status_code == 422
        assert "A model of kind 'gaussian naive bayes' has no joint distribution" in refused.json()["detail"]
        refused = client.post("/v1/models/bell/predict?interval=0.9", json=ask)
        assert refused.status_code == 422
        assert "a model of kind 'gaussian naive bayes' has no posterior" in refused.json()["detail"]


BGE_ROWS = pa.table({"number": NUMBER, "other": NUMBER / 2 + RANDOM.normal(size=240)})


def at(place, value):
    def change(array):
        changed = np.array(array)
        changed.flat[place] = value
        return changed

    return change


TAMPERED = [
    ("ensemble", "joint1_estimate_variance", None, "'joint1_estimate_variance' of the model is missing"),
    ("ensemble", "table_log_prior", at(0, 1e30), "'table_log_prior' .* not log probabilities"),
    ("ensemble", "entry_alone", at(0, np.nan), "'entry_alone' .* not finite"),
    ("ensemble", "class_counts", at(0, -1), "'class_counts' .* invalid row counts"),
    ("lookup", "table_log_prior", at(0, -1e30), "'table_log_prior' .* not log probabilities"),
    ("averaged-trees", "alone", at(0, 1e30), "'alone' .* not log probabilities"),
    ("averaged-trees", "ratios", lambda array: np.zeros_like(array), "predicts values that are not numbers"),
    ("boosted-trees", "gains", at(0, np.nan), "'gains' .* not finite"),
    ("bayesian circuit", "draws.parameter", at(0, 1e30), "'draws.parameter' .* a draw that is no circuit .draw 0: "),
    ("bayesian circuit", "draws.parameter", at(0, np.nan), "'draws.parameter' .* a draw that is no circuit"),
    ("bayesian circuit", "trace", np.ravel, "'trace' .* expected float64 of shape"),
    ("orders", "row_counts", lambda array: array.reshape(-1, 1), "'rows' .* do not match the columns"),
    ("orders", "spread", at(0, 0.0), "'spread' .* not positive"),
    ("bge", "spread", at(1, -1.0), "'spread' .* not positive"),
    ("bge", "scatter", at(0, -1e30), "'scatter' .* not a sum of products"),
    ("bge", "best", at(0, 1), "Singular matrix"),
]
FACTS = [
    ("boosted-trees", {"class_counts": [1, 2, 3]}, "class_counts of the model is not a number of rows for each of 2"),
    ("boosted-trees", {"class_counts": [1, -2]}, "class_counts of the model is not a number of rows for each of 2"),
    ("boosted-trees", {"class_counts": None}, "class_counts of the model is not a number of rows for each of 2"),
    ("lookup", {"n_rows": "many"}, "n_rows of the model is not a number of rows"),
    ("bayesian circuit", {"diagnostics": []}, "has no attribute 'get'"),
    ("orders", {"taken_as": {"a": 1, "b": 2}}, "has no attribute 'partition'"),
]


@pytest.fixture(scope="module")
def stored(models):
    made = models | {"bge": drive(recipes.learner("orders", {"score": "bge"}, None), Source.of_table(BGE_ROWS))}
    return {kind: model.to_arrays() for kind, model in made.items()}


@pytest.mark.parametrize(("kind", "name", "change", "words"), TAMPERED)
def test_an_array_that_no_training_writes_is_refused_where_models_come_in(stored, kind, name, change, words):
    header, arrays = stored[kind]
    assert model_refusal_reason(header, arrays) == ""
    others = {other: array for other, array in arrays.items() if other != name}
    reason = model_refusal_reason(header, others if change is None else others | {name: change(arrays[name])})
    assert re.search(words, reason), reason


@pytest.mark.parametrize(("kind", "facts", "words"), FACTS)
def test_facts_that_contradict_the_model_are_refused_where_models_come_in(stored, kind, facts, words):
    header, arrays = stored[kind]
    reason = model_refusal_reason(header | {"facts": header["facts"] | facts}, arrays)
    assert words in reason


def test_a_score_of_no_rows_is_refused_where_models_come_in(stored):
    header, arrays = stored["bge"]
    for change in ({"n_rows": -1}, {"n_rows": None}, {"alpha_mu": "x"}, {"alpha_w": 0.0}):
        reason = model_refusal_reason(header | {"bge": header["bge"] | change}, arrays)
        assert f"Parameter {next(iter(change))}=" in reason
