"""Docstrings of what a notebook imports: sections that a reader looks for, and examples that run."""

import doctest

import pytest

import fewpass

ESTIMATORS = [
    "NB",
    "TAN",
    "KDB",
    "SKDB",
    "ESKDB",
    "FewPassClassifier",
    "XGBoost",
    "SumProductNetwork",
    "StructurePosterior",
]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator_says_what_it_takes_and_has_and_its_example_runs(name):
    text = getattr(fewpass, name).__doc__
    for section in ("Parameters", "Attributes", "Examples"):
        assert f"\n{section}\n{'-' * len(section)}\n" in text.replace("\n    ", "\n"), section
    example = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    told: list[str] = []
    assert example.examples and doctest.DocTestRunner().run(example, out=told.append).failed == 0, "".join(told)
