"""Arguments that are nothing of the kind: one sentence that names the argument and what to give; and estimators take what their learners' parameters are."""

import inspect
import pickle
import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import fewpass
from fewpass import ESKDB, KDB, NB, SKDB, TAN, FewPassClassifier
from learners.errors import InvalidParameter
from learners.estimators.arguments import COMMON
from learners.registry import recipes

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    late = rng.random(80) < 0.5
    return pd.DataFrame(
        {"size": rng.normal(2.0 * late, 1.0), "where": np.where(late, "n", "s"), "late": late.astype(str)}
    )


@pytest.fixture(scope="module")
def model(frame):
    return fewpass.KDB(k=1, estimator="hdp-map").fit(frame, "late")


@pytest.fixture(scope="module")
def circuit(frame):
    return fewpass.SumProductNetwork(states=2).fit(frame, "late")


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda model, circuit, frame: model.predict_interval(frame, "x"), "level='x' must be a number"),
        (lambda model, circuit, frame: model.predict_proba([1, 2]), "X .list. .*Reshape your data"),
        (lambda model, circuit, frame: model.merged(3), "Argument other must be .*fitted estimator.*, not int"),
        (lambda model, circuit, frame: model.save(3), "path=3 .*must be a path"),
        (lambda model, circuit, frame: model.to_sql("t", dialect=3), "dialect=3 .*must be text"),
        (lambda model, circuit, frame: model.to_sql("t", key=3), "key=3 .*list of names"),
        (lambda model, circuit, frame: circuit.impute(frame, how="x"), "how='x' .*'mode', 'mean', 'draw'"),
        (lambda model, circuit, frame: circuit.impute(frame, seed="x"), "seed='x' .*whole number"),
        (lambda model, circuit, frame: circuit.sample("x"), "n_samples='x' .*whole number"),
        (lambda model, circuit, frame: circuit.sample(2, "x"), "random_state='x' .*whole number from 0"),
        (lambda model, circuit, frame: circuit.sample(2, given=3), "given=3 .*must be a mapping"),
        (lambda model, circuit, frame: fewpass.load(3), "path=3 .*must be a path"),
        (lambda model, circuit, frame: fewpass.NB().fit(frame, 3), "y .int. .*1d array"),
        (lambda model, circuit, frame: fewpass.NB(columns=3).fit(frame, "late"), "columns=3 .*must be a mapping"),
        (lambda model, circuit, frame: fewpass.NB(schema=3).fit(frame, "late"), "schema=3 .*must be a Schema"),
        (lambda model, circuit, frame: fewpass.NB(target=3).fit(frame), "target=3 .*must be text"),
        (lambda model, circuit, frame: fewpass.NB(threads=-1).fit(frame, "late"), "threads=-1 .*one or more"),
        (lambda model, circuit, frame: fewpass.ESKDB(seed="x").fit(frame, "late"), "seed='x' .*whole number"),
        (lambda model, circuit, frame: fewpass.NB().partial_fit(frame, "late", [1, 2]), "classes=.* classes such as"),
        (lambda model, circuit, frame: model.score(frame, 3), "y must be a list of the 80 rows' classes, not int"),
        (lambda model, circuit, frame: model.score(frame, [1, 2]), "y has 2 classes, but X has 80 rows"),
        (lambda model, circuit, frame: model.score(frame, [1.5] * 80), "y .list. cannot be used"),
        (lambda model, circuit, frame: model.record_classifier()(3), "Argument record must be .*a mapping.*, not int"),
        (lambda model, circuit, frame: model.record_classifier()("size"), "Argument record must be .*a mapping.*, not str"),
        (lambda model, circuit, frame: fewpass.explain(model.model_, 3), "Argument chunk must be .*a Chunk.*, not int"),
        (lambda model, circuit, frame: fewpass.explain(3, frame), "Argument model must be .*a model.*, not int"),
        (lambda model, circuit, frame: fewpass.read_network(3), "path=3 .*must be a path"),
        (lambda model, circuit, frame: fewpass.compare(3), "Argument outcomes must be .*cross_validate.*, not int"),
        (lambda model, circuit, frame: fewpass.compare([3]), "Argument outcomes must be .*cross_validate.*, not int"),
        (lambda model, circuit, frame: fewpass.Client(3), "url=3 .*must be text"),
        (lambda model, circuit, frame: fewpass.encode(3, model.model_.schema), "batch, schema='int, Schema' .*RecordBatch"),
        (lambda model, circuit, frame: fewpass.infer_schema(3, "class"), "Argument source must be .*a Source.*, not int"),
        (lambda model, circuit, frame: fewpass.collect(3, 3), "statistic, source='int, int' .*must be an empty statistic"),
        (lambda model, circuit, frame: fewpass.drive(3, 3), "Argument learner must be .*a learner such as learner.*, not int"),
        (lambda model, circuit, frame: fewpass.drive(fewpass.learner("nb", {}, "class"), 3), "Argument source must be .*a Source.*, not int"),
        (lambda model, circuit, frame: fewpass.cross_validate(3, ["nb"]), "data=3 .*must be a list"),
        (lambda model, circuit, frame: fewpass.cross_validate([], "nb"), "learners='nb' .*must be a list"),
    ],
)  # fmt: skip
def test_arguments_are_looked_at(call, told, model, circuit, frame):
    with pytest.raises(InvalidParameter, match=told):
        call(model, circuit, frame)


def test_no_rows_and_rows_of_nothing_have_answers(model, circuit):
    for each in (model, circuit):
        assert each.predict_proba([]).shape == (0, 2)
        assert each.predict_proba([{}, {}]).shape == (2, 2)
        assert np.allclose(each.predict_proba({}), each.predict_proba([{}]))


@pytest.mark.parametrize(
    ("cls", "name", "hint"),
    [
        (FewPassClassifier, "random_state", "use seed"),
        (fewpass.SumProductNetwork, "n_jobs", "use threads"),
        (FewPassClassifier, "learning_rate", r"use effort \('low', 'normal' or 'high'\)"),
        (fewpass.XGBoost, "n_estimators", "use rounds"),
        (fewpass.XGBoost, "eta", "use learning_rate"),
        (KDB, "alpha", "use m, with estimator='m'"),
        (NB, "class_weight", "sample_weight"),
        (NB, "categorical_feature", "nominal"),
    ],
)
def test_names_of_other_libraries_are_translated(cls, name, hint):
    """Users of scikit-learn, XGBoost, LightGBM and CatBoost read what a parameter is called here."""
    with pytest.raises(TypeError, match=rf"'{name}'; {hint}" if hint.startswith("use") else rf"'{name}'; .*{hint}"):
        cls(**{name: 1})


def test_unknown_keywords_of_methods_say_what_to_write(model, frame):
    with pytest.raises(TypeError, match=r"NB.fit\(\) got .* 'target'; name the class column as fit\(X, 'column'\)"):
        NB().fit(frame, target="late")
    with pytest.raises(TypeError, match=r"query\(\) got .* 'of'; pass a query, such as fewpass.Conditional"):
        model.query(of="late")


def test_parameters_of_commands_and_jobs_are_translated():
    with pytest.raises(InvalidParameter, match="random_state=1 is not allowed: use seed; learner 'auto' has"):
        fewpass.learner("auto", {"random_state": 1}, "class")


@pytest.mark.parametrize("cls", [NB, TAN, KDB, SKDB, ESKDB, FewPassClassifier])
def test_an_estimator_takes_the_parameters_of_its_learner(cls):
    parameters = recipes.learner_recipe(cls._learner).parameters
    defaults = (
        {field.name: field.default for field in fields(parameters)}
        | dict.fromkeys(COMMON)
        | {"verbose": False, "holdout_by": "auto"}
    )
    taken = inspect.signature(cls).parameters
    assert {name: parameter.default for name, parameter in taken.items()} == defaults
    assert cls().get_params() == defaults
    for name in defaults:
        assert re.search(rf"^(\w+, )*{name}(, \w+)*( :|$)", inspect.getdoc(cls), re.MULTILINE), name


def test_it_is_cloned_pickled_and_changed():
    made = KDB(k=3, target="class")
    assert clone(made).get_params() == pickle.loads(pickle.dumps(made)).get_params() == made.get_params()
    assert made.set_params(k=2).k == 2
    assert repr(made) == "KDB(k=2, target='class')"


def test_other_arguments_are_refused_by_name_and_a_class_of_a_user_may_have_its_own():
    with pytest.raises(TypeError, match=r"NB\(\) got an unexpected keyword argument 'k'"):
        NB(k=2)
    with pytest.raises(TypeError, match=r"KDB\(\) too many positional arguments"):
        KDB(2)

    with pytest.raises(TypeError, match=r"keyword argument 'memry'; similar: memory"):
        FewPassClassifier(memry=1)

    class Mine(KDB):
        def __init__(self, *, k=4):
            super().__init__(k=k)

    assert Mine().get_params() == {"k": 4}


@pytest.mark.parametrize("name", recipes.LEARNERS)
def test_the_docs_name_every_parameter(name):
    pages = "".join(page.read_text() for page in DOCS.rglob("*.md"))
    missing = [
        field.name for field in fields(recipes.learner_recipe(name).parameters) if f"`{field.name}`" not in pages
    ]
    assert not missing
