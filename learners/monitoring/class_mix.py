"""Tests for a change of the class shares: by the labels or, without them, by the mean predicted probabilities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learners.kernels.arrays import Floats, Integers
from learners.monitoring.kernels import CONFIDENCE_BINS, FIXED_POINT
from learners.monitoring.reference import Reference
from learners.monitoring.served_counts import ServedCounts
from learners.monitoring.two_sample_tests import NOTHING, Comparison, Repeats, g_test_rates


def class_share_test(
    window: ServedCounts, reference: Reference, mix: Floats, before: Floats, repeats: Repeats
) -> Comparison:
    """Test the mean predicted probability of each class against that of reference rows, scored by the same model.

    Estimated class shares (`estimated_class_shares`) vary much more than counted ones, and more so if the columns
    have little class information. A predicted probability is one number per row, so its mean varies as its
    variance implies, however the columns depend on each other. The test is a G-test with the number of trials
    that would give the same variance.

    Parameters
    ----------
    mix, before : (n_classes,) float64
        Estimated shares in the window, and shares in the reference.

    Returns
    -------
    Comparison
        `nats` is the divergence of `mix` from `before`. `NOTHING` without predictions of both sides.
    """
    other = reference.served
    if other is None or not window.watched.n_classes:
        return NOTHING
    n_own, n_other = (int(counts.block("predicted")[0]) for counts in (window, other))
    if not n_own or not n_other:
        return NOTHING
    own_means, other_means = (
        counts.block("sums")[: mix.size] / FIXED_POINT / n for counts, n in ((window, n_own), (other, n_other))
    )
    means = (own_means * n_own + other_means * n_other) / (n_own + n_other)
    entropy = sum(float(counts.block("sums")[-1]) for counts in (window, other)) / FIXED_POINT / (n_own + n_other)
    confidence = window.block("confidence") + other.block("confidence")
    trials = means * (1 - means) / _probability_variances(confidence, means, entropy)
    tests = [
        _share_test(own, n_own, before_it, n_other, n_trials, repeats)
        for own, before_it, mean, n_trials in zip(own_means, other_means, means, trials, strict=True)
        if 0 < mean < 1
    ]
    return _least_probable(tests, mix, before, n_own)


def counted_class_share_test(
    window: Integers, reference: Integers, mix: Floats, before: Floats, repeats: Repeats
) -> Comparison:
    """Test the counted rows of each class, (n_classes,) int64, against those of the reference, as `class_share_test` does."""
    n_own, n_other = int(window.sum()), int(reference.sum())
    tests = [
        _share_test(own / n_own, n_own, other / n_other, n_other, 1.0, repeats)
        for own, other in zip(window.tolist(), reference.tolist(), strict=True)
        if own or other
    ]
    return _least_probable(tests, mix, before, n_own)


def _share_test(own: float, n_own: int, other: float, n_other: int, trials: float, repeats: Repeats) -> Comparison:
    """Test one share; each row tells as much as so many trials."""
    copies = Repeats(repeats.inflation, tuple(round(trials * burst) for burst in repeats.bursts))
    n, m = trials * n_own, trials * n_other
    return g_test_rates(float(own) * n, n, float(other) * m, m, copies)


def _least_probable(tests: Sequence[Comparison], mix: Floats, before: Floats, n_rows: int) -> Comparison:
    if not tests:
        return NOTHING
    best = min(tests, key=lambda one: one.p_value)
    with np.errstate(divide="ignore", invalid="ignore"):
        nats = float(np.where(mix > 0, mix * np.log(mix / before), 0.0).sum())
    return Comparison(min(1.0, max(1, mix.size - 1) * best.p_value), nats, best.g, 1, n_rows)


def _probability_variances(confidence: Integers, means: Floats, entropy: float) -> Floats:
    """Estimate the variance of the predicted probability of each class, (n_classes,) float64; conservative, so rather
    too large.

    The histogram of predicted classes by confidence reveals large variances. Small ones are twice the information
    of the predictions about the class, in units of the multinomial's variance: H(mean) - mean H is about sum
    Var(p) / (2 mean).
    """
    shares, middles = confidence / max(1, confidence.sum()), (np.arange(CONFIDENCE_BINS) + 0.5) / CONFIDENCE_BINS
    positive = means[means > 0]
    information = max(0.0, float(-(positive * np.log(positive)).sum()) - entropy)
    small = 2 * information * means
    if means.size == 2:
        x, weights = np.concatenate([middles, 1 - middles]), shares.ravel()
        large = np.full(2, weights @ x**2 - (weights @ x) ** 2)
        small *= 1 - means
    else:
        rest = np.maximum(0.0, means - shares @ middles)  # of rows that are predicted another class
        large = shares @ middles**2 + 0.5 * rest - means**2
    variances: Floats = np.clip(np.maximum(small, large), 1e-9, None)
    return variances
