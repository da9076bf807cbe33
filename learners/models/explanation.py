"""Explanations of predictions: each attribute's contribution to the log odds against the second most probable class."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from learners.answer_checks import check_answer_distributions
from learners.errors import InvalidArgument
from learners.kernels.arrays import Floats, Integers, Mask
from learners.models.model import Model
from learners.schema import Chunk

# With so many attributes all coalitions are asked: at most 256 predictions.
MOST_EXACT = 8
# Number of random orders, each walked forwards and backwards.
N_ORDERS = 8
# Rows that are explained together.
BLOCK = 4096
# Log odds that differ by less, relative to their size, are the same: tables hold logarithms as float32.
SUM_TOLERANCE = 1e-5


class Explanation(NamedTuple):
    """Log odds of the predicted class, decomposed by attribute; n rows, d attributes in schema order.

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
        For a network log P(x_i | predicted, parents) - log P(x_i | against, parents). For trees SHAP values, for other models and
        where columns are missing Shapley values (`shapley_terms`). Zero for an absent attribute.
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
    """A model whose log probabilities are sums over the attributes, up to a term common to all classes."""

    def log_terms(self, chunk: Chunk) -> tuple[Floats, Floats]:
        """Return the prior's term (n_classes,), and the attributes' terms (n_attributes, n_rows, n_classes)."""


def explain(model: Model, chunk: Chunk, pause: Callable[[], None] | None = None) -> Explanation:
    """Explain the prediction of each row. Raises NoClass or InvalidParameter.

    `pause`: called before each of the many predictions that missing columns need; what it raises ends the explanation.
    """
    if not hasattr(model, "predict_proba"):
        raise InvalidArgument("model", model, "a model, such as estimator.model_")
    if not isinstance(chunk, Chunk):
        raise InvalidArgument("chunk", chunk, "a Chunk; estimator.explain(X) takes rows of any form")
    probabilities = check_answer_distributions(model.predict_proba(chunk))
    n_rows, n_classes = probabilities.shape
    ranked = np.argsort(-probabilities, axis=1, kind="stable")
    predicted, against = ranked[:, 0], ranked[:, min(1, n_classes - 1)]
    log_prior, terms = _terms(model, chunk, probabilities, pause or (lambda: None))
    rows = np.arange(n_rows)
    prior = log_prior[rows, predicted] - log_prior[rows, against]
    with np.errstate(invalid="ignore"):  # infinity less infinity: both classes exclude the value
        contributions = (terms[:, rows, predicted] - terms[:, rows, against]).T
        log_odds = prior + contributions.sum(axis=1)
    return Explanation(probabilities, predicted, against, log_odds, prior, contributions)


def _terms(model: Model, chunk: Chunk, probabilities: Floats, pause: Callable[[], None]) -> tuple[Floats, Floats]:
    """Return the prior's terms (n_rows, n_classes), and the attributes' (n_attributes, n_rows, n_classes).

    With missing columns, a network's prediction is not the sum of its terms, so these rows use Shapley values.
    """
    if isinstance(model, Additive):
        of_all, terms = model.log_terms(chunk)
        log_prior = np.tile(of_all, (chunk.n_rows, 1))
        is_sum = _are_sums(log_prior + terms.sum(axis=0), probabilities)
        # SHAP values of trees give absent columns their share, too; here what is not known adds nothing.
        is_absent = chunk.x >= model.schema.domain_sizes[:, np.newaxis]
        is_sum &= ~((terms != 0) & is_absent[:, :, np.newaxis]).any(axis=(0, 2))
    else:
        log_prior, is_sum = np.zeros(probabilities.shape), np.zeros(chunk.n_rows, np.bool_)
        terms = np.zeros((len(chunk.x), *probabilities.shape))
    patterns = np.packbits(chunk.x >= model.schema.domain_sizes[:, np.newaxis], axis=0).T
    for pattern in np.unique(patterns[~is_sum], axis=0):
        rows = np.flatnonzero(~is_sum & (patterns == pattern).all(axis=1))
        log_prior[rows], terms[:, rows] = shapley_terms(model, chunk.rows(rows), pause)
    return log_prior, terms


def _are_sums(scores: Floats, probabilities: Floats) -> Mask:
    """Return whether the log odds of the probabilities equal those of the scores, (n_rows,) bool."""
    with np.errstate(divide="ignore", invalid="ignore"):  # infinity less infinity: a row that no class can produce
        logs = np.log(probabilities)
        off = (scores - scores.max(axis=1, keepdims=True)) - (logs - logs.max(axis=1, keepdims=True))
        is_off = np.abs(off) > SUM_TOLERANCE * np.maximum(1.0, np.abs(logs))
    return np.asarray(~(is_off & np.isfinite(off)).any(axis=1))


def shapley_terms(model: Model, chunk: Chunk, pause: Callable[[], None] = lambda: None) -> tuple[Floats, Floats]:
    """Return the prior's term (n_classes,), and each attribute's Shapley value of log P(class | x), (n_attributes,
    n_rows, n_classes).

    The value of a coalition is the model's prediction with only its attributes known; an attribute that is
    missing in all rows contributes nothing. Values are exact for up to `MOST_EXACT` attributes. For more, they
    are means over `N_ORDERS` fixed random orders and their reverses: their sum is exact, and each is an estimate.

    References
    ----------
    Shapley (1953), A value for n-person games; Štrumbelj, Kononenko (2014), Explaining prediction models and individual
    predictions with feature contributions; Mitchell, Cooper, Frank, Holmes (2022), Sampling permutations for Shapley value
    estimation, section 4.1 (reversed orders).
    """
    d = chunk.x.shape[0]
    players = np.flatnonzero(~(chunk.x >= model.schema.domain_sizes[:, np.newaxis]).all(axis=1))
    shares = _all_coalitions if players.size <= MOST_EXACT else _some_orders
    parts = [
        shares(model, chunk.rows(slice(start, start + BLOCK)), players, pause)
        for start in range(0, chunk.n_rows, BLOCK)
    ]
    numbers = None if chunk.numbers is None else np.zeros((len(chunk.numbers), 1))
    nothing = Chunk(np.zeros((d, 1), chunk.x.dtype), None, numbers)
    log_prior = masked_class_log_posteriors(model, nothing, np.zeros(d, bool))[0]
    return log_prior, np.concatenate([np.zeros((d, 0, log_prior.size)), *parts], axis=1)


def masked_class_log_posteriors(model: Model, chunk: Chunk, known: Mask) -> Floats:
    """Return log P(class | x) given only the known attributes of x, (n_rows, n_classes) float64."""
    x = chunk.x.copy()
    unknown = np.flatnonzero(~known)
    x[unknown] = np.array([model.schema.attributes[i].n_values for i in unknown], x.dtype)[:, np.newaxis]
    numbers = None if chunk.numbers is None else chunk.numbers.copy()
    if numbers is not None:
        numbers[~known[list(model.schema.continuous)]] = np.nan
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(model.predict_proba(Chunk(x, None, numbers))))


def _all_coalitions(model: Model, chunk: Chunk, players: Integers, pause: Callable[[], None]) -> Floats:
    d = players.size
    members = (np.arange(1 << d)[:, np.newaxis] >> np.arange(d)) & 1 == 1
    values = []
    for own in members:
        pause()
        values.append(masked_class_log_posteriors(model, chunk, np.isin(np.arange(len(chunk.x)), players[own])))
    terms = np.zeros((len(chunk.x), *values[0].shape))
    with np.errstate(invalid="ignore"):  # infinity less infinity: both coalitions exclude the class
        for without, known in enumerate(members):
            weight = 1 / (d * math.comb(d - 1, known.sum())) if known.sum() < d else 0.0
            for i in np.flatnonzero(~known):
                terms[players[i]] += weight * (values[without | 1 << i] - values[without])
    return terms


def _some_orders(model: Model, chunk: Chunk, players: Integers, pause: Callable[[], None]) -> Floats:
    d = chunk.x.shape[0]
    random = np.random.default_rng(0)
    orders = [random.permutation(players) for _ in range(N_ORDERS)]
    first = masked_class_log_posteriors(model, chunk, np.zeros(d, bool))
    terms = np.zeros((d, *first.shape))
    with np.errstate(invalid="ignore"):
        for order in orders + [order[::-1] for order in orders]:
            known, before = np.zeros(d, bool), first
            for i in order:
                pause()
                known[i] = True
                after = masked_class_log_posteriors(model, chunk, known)
                terms[i] += (after - before) / (2 * N_ORDERS)
                before = after
    return terms
