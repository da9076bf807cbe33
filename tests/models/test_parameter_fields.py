"""The parameters of every learner as a form shows them: choices that are allowed, and a sentence each."""

import dataclasses

import pytest

from learners.errors import InvalidParameter
from learners.models.parameters import parameter_fields
from learners.registry import recipes

LEARNERS = list(recipes.LEARNERS)


@pytest.mark.parametrize("learner", LEARNERS)
def test_each_parameter_has_a_sentence_and_its_default(learner):
    parameters = recipes.LEARNERS[learner].parameters
    found = {each.name: each for each in parameter_fields(parameters)}
    assert found.keys() == {field.name for field in dataclasses.fields(parameters)}
    usual = {field.name: getattr(field, "default", None) for field in dataclasses.fields(parameters)}
    for name, each in found.items():
        assert each.sentence[-1] == "." and len(each.sentence.split()) > 3, (name, each.sentence)
        assert each.sentence[0].isupper() and not each.sentence.startswith("Of "), (name, each.sentence)
        if usual[name] is not dataclasses.MISSING:
            assert each.default == usual[name]


@pytest.mark.parametrize("learner", LEARNERS)
def test_each_choice_is_one_that_the_learner_knows(learner):
    """A word that is no choice is refused with what the choices are; each of the choices is not."""
    for each in parameter_fields(recipes.LEARNERS[learner].parameters):
        for choice in each.choices:
            try:
                recipes.parse_learner_parameters(learner, {each.name: choice})
            except InvalidParameter as told:  # what only goes with another parameter names that one
                assert "must be one of" not in str(told) and "Input should be" not in str(told), (
                    each.name,
                    choice,
                    told,
                )
        if each.choices:
            with pytest.raises(InvalidParameter, match=each.name) as refused:
                recipes.parse_learner_parameters(learner, {each.name: "no such word"})
            assert "Input should be" not in str(refused.value)


def test_shapes_and_numbers():
    found = {each.name: each for each in parameter_fields(recipes.LEARNERS["orders"].parameters)}
    shapes = {name: found[name].shape for name in ("required", "tiers", "edge_log_odds", "ess")}
    assert shapes == {"required": "list", "tiers": "groups", "edge_log_odds": "pairs", "ess": "single"}
    assert found["ess"].number is float and found["draws"].number is int and found["prior"].number is None
    assert found["standardise"].choices == (True, False)
