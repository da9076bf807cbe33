"""Why a class was predicted: what each attribute adds to the log odds against the next probable class."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from learners.arrays import Floats, Integers
from learners.errors import InvalidParameter
from learners.model import Model
from learners.schema import Chunk


class Explanation(NamedTuple):
    """The log odds of the predicted class, taken apart; n rows, d attributes in the order of the schema.

    Parameters
    ----------
    probabilities : (n, n_classes) float64
    predicted : (n,) int64
        Code of the most probable class.
    against : (n,) int64
        Code of the second; with two classes the other one.
    log_odds : (n,) float64
        log P(predicted | x) - log P(against | x); `prior` plus the sum of `contributions`, in that order.
    prior : (n,) float64
        What the classes' frequencies alone say.
    contributions : (n, d) float64
        For a network log P(x_i | predicted, parents) - log P(x_i | against, parents); zero for an absent attribute.
        Infinite where the other class excludes the value; not a number where both do.
    """

    probabilities: Floats
    predicted: Integers
    against: Integers
    log_odds: Floats
    prior: Floats
    contributions: Floats


@runtime_checkable
class Additive(Protocol):
    """A model whose log probabilities are, up to what all classes share, sums over the attributes."""

    def log_terms(self, chunk: Chunk) -> tuple[Floats, Floats]:
        """(n_classes,) the prior's term, and (n_attributes, n_rows, n_classes) the attributes'."""


def explain(model: Model, chunk: Chunk) -> Explanation:
    """Explain the prediction of each row.

    Parameters
    ----------
    model : Model
        A network classifier, or boosted trees (there a contribution is the attribute's SHAP value).
    chunk : Chunk

    Raises
    ------
    InvalidParameter
        If the model's answer is no sum over attributes.
    """
    if not isinstance(model, Additive):
        raise InvalidParameter("explain", True, f"the answer of a model of kind {model.kind!r} is no sum of attributes")
    probabilities = model.predict_proba(chunk)
    n_rows, n_classes = probabilities.shape
    ranked = np.argsort(-probabilities, axis=1, kind="stable")
    predicted, against = ranked[:, 0], ranked[:, min(1, n_classes - 1)]
    log_prior, terms = model.log_terms(chunk)
    rows = np.arange(n_rows)
    prior = log_prior[predicted] - log_prior[against]
    with np.errstate(invalid="ignore"):  # infinity less infinity: both classes exclude the value
        contributions = (terms[:, rows, predicted] - terms[:, rows, against]).T
        log_odds = prior + contributions.sum(axis=1)
    return Explanation(probabilities, predicted, against, log_odds, prior, contributions)
