"""Estimators take what their learners' parameters are, which are stated once, and the docs tell of all."""

import inspect
import pickle
import re
from dataclasses import fields
from pathlib import Path

import pytest
from sklearn.base import clone

from learners import ESKDB, KDB, NB, SKDB, TAN, FewPassClassifier
from learners.estimators.classifier import Classifier
from learners.estimators.constructors import COMMON
from learners.registry import recipes

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("cls", [NB, TAN, KDB, SKDB, ESKDB, FewPassClassifier])
def test_an_estimator_takes_the_parameters_of_its_learner(cls):
    parameters = recipes.recipe(cls._learner).parameters
    defaults = {field.name: field.default for field in fields(parameters)} | dict.fromkeys(COMMON) | {"verbose": False}
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


def test_other_arguments_are_refused_by_name():
    with pytest.raises(TypeError, match=r"NB\(\) got an unexpected keyword argument 'k'"):
        NB(k=2)
    with pytest.raises(TypeError, match=r"KDB\(\) too many positional arguments"):
        KDB(2)


def test_a_class_of_a_user_may_have_a_constructor_of_its_own():
    class Mine(KDB):
        def __init__(self, *, k=4):
            super().__init__(k=k)

    assert Mine().get_params() == {"k": 4}
    assert issubclass(Mine, Classifier)


@pytest.mark.parametrize("name", recipes.LEARNERS)
def test_the_docs_name_every_parameter(name):
    pages = "".join(page.read_text() for page in DOCS.rglob("*.md"))
    missing = [field.name for field in fields(recipes.recipe(name).parameters) if f"`{field.name}`" not in pages]
    assert not missing
