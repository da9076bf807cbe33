"""Code and pickles of releases up to 0.2.0 name estimators of `learners`."""

import importlib
import pickle

import pytest

import fewpass
import learners
import learners.estimators

PLACES = {"classifier": ["NB", "TAN", "KDB", "SKDB", "ESKDB", "FewPassClassifier"]}
PLACES |= {"circuits": ["SumProductNetwork"], "structure_posterior": ["StructurePosterior"]}


@pytest.mark.parametrize("module, name", [(module, name) for module, names in PLACES.items() for name in names])
def test_a_released_name_is_the_estimator_of_fewpass(module, name):
    own = getattr(fewpass, name)
    assert getattr(learners, name) is own and getattr(learners.estimators, name) is own
    written = f"clearners.estimators.{module}\n{name}\n.".encode()  # as pickles name a class
    assert pickle.loads(written) is own


@pytest.mark.parametrize("module", ["learners", "learners.estimators", "learners.estimators.classifier"])
def test_another_name_is_missing(module):
    with pytest.raises(AttributeError, match="Perceptron"):
        getattr(importlib.import_module(module), "Perceptron")  # noqa: B009
