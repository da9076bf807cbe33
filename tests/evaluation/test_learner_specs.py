"""Learners in a word of text."""

from learners.evaluation.learner_specs import LearnerSpec


def test_lists_are_parameters_of_a_learner_in_a_word():
    spec = LearnerSpec.parse("kdb:k=5,prior=[0,0]")
    assert dict(spec.parameters) == {"k": 5, "prior": (0, 0)}
    assert LearnerSpec.parse(spec.text) == spec and hash(spec)
