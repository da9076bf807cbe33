"""Have the shares of the classes changed? A test without labels, by the mean predicted probabilities."""

from __future__ import annotations

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

    Estimated shares of the classes (`estimated_class_shares`) vary far more than counted ones, the more the less the
    columns tell of the class. A predicted probability is one number of each row, so its mean varies as its variance
    says, whatever the columns have to do with each other. The test is a G-test of as many trials as would vary as much.

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
    variances = _probability_variances(confidence, means, entropy)
    tests = []
    for own, before_it, mean, variance in zip(own_means, other_means, means, variances, strict=True):
        if not 0 < mean < 1:
            continue
        trials = mean * (1 - mean) / variance  # of one row
        copies = Repeats(repeats.inflation, tuple(round(trials * burst) for burst in repeats.bursts))
        n, m = trials * n_own, trials * n_other
        tests.append(g_test_rates(float(own) * n, n, float(before_it) * m, m, copies))
    if not tests:
        return NOTHING
    best = min(tests, key=lambda one: one.p_value)
    with np.errstate(divide="ignore", invalid="ignore"):
        nats = float(np.where(mix > 0, mix * np.log(mix / before), 0.0).sum())
    return Comparison(min(1.0, max(1, mix.size - 1) * best.p_value), nats, best.g, 1, n_own)


def _probability_variances(confidence: Integers, means: Floats, entropy: float) -> Floats:
    """(n_classes,) float64: what the predicted probability of each class varies, in doubt more.

    Predicted classes by confidence show large variances; small ones are twice the information that predictions have of the
    class, in units of the multinomial's variance: H(mean) - mean H is about sum Var(p) / (2 mean).
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
