"""All drift tests of one window, with their significance and effect size."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy

from learners.kernels.arrays import Floats, Integers
from learners.monitoring import two_sample_tests
from learners.monitoring.class_mix import class_share_test, counted_class_share_test
from learners.monitoring.count_layout import REPEAT_CELLS
from learners.monitoring.kernels import FIXED_POINT
from learners.monitoring.label_counts import Labels
from learners.monitoring.reference import (
    Reference,
    estimated_class_shares,
    reference_class_shares,
    reference_with_class_shares,
    smoothed_shares,
)
from learners.monitoring.served_counts import (
    ABOVE,
    ABSENT,
    BELOW,
    COMPARED,
    HIGH_TAIL,
    LOW_TAIL,
    NULL,
    UNSEEN,
    ServedCounts,
)
from learners.monitoring.two_sample_tests import (
    INDEPENDENT,
    Comparison,
    Repeats,
    g_test_counts,
    g_test_rates,
    g_test_tables,
)

MAX_Q, MIN_NATS, MIN_POINTS = 0.01, 0.01, 1.0
# Rows of a window that can alarm; rows that repeat count once, but for the alarm that they repeat.
LEAST_ROWS = 20
MOST_BURSTS = 16
# How much more often than in the reference rows may be equal: of a sample of rows, and of counts by family alone.
REPEAT_TOLERANCE, FAMILY_TOLERANCE = 0.03, 0.1
REPEATS_ARE_LIKELY = 2.0  # standard errors beyond which rows are taken to repeat, and columns to have lost variety
HIDDEN_REPEATS = 2.5  # standard errors by which tests count rows less than they are seen to repeat
COLUMNS_THAT_TELL = 4  # of several values: the median of fewer moves with one of them
MOST_DISPERSION = 5.0  # of the median G by its degrees of freedom: how many copies of each row it allows
QUALITY = ("absent", "missing", "unseen", "out_of_range", "rare", "low_tail", "high_tail")


@dataclass(frozen=True)
class Limits:
    """Thresholds of an alarm; a test must exceed both the significance and the effect, in two of three windows."""

    q: float = MAX_Q  # greatest rate of false discoveries
    nats: float = MIN_NATS  # least divergence
    points: float = MIN_POINTS  # least change of a rate, in points of one hundred


@dataclass(frozen=True)
class Finding:
    """Result of one drift test."""

    kind: str  # absent, missing, unseen, rare, out_of_range, family, class_mix, confidence, surprise or repeats
    column: str | None
    effect: float  # in the unit
    unit: str  # "nats" or "points"
    p_value: float
    n_rows: int  # of the window that it is about
    q_value: float = 1.0
    is_alarming: bool = False  # sure and large enough


def run_drift_tests(
    window: ServedCounts,
    reference: Reference,
    limits: Limits = Limits(),
    alike: float = 1.0,
    labels: Labels | None = None,
) -> tuple[list[Finding], dict[str, object]]:
    """Test a window against a reference, controlling the false discovery rate over all tests.

    `labels`: counted classes, which are then tested instead of estimated ones.
    `alike`: how many rows, which need not be equal, count as one in the tests; rows that are equal do so anyway.
    Also returns the estimates `repeats_per_row`, `inflation`, `bursts` and `class_mix`.
    """
    copies, sure, is_likely, repeats = 0.0, two_sample_tests.NOTHING, False, INDEPENDENT
    # Rows of few possible kinds agree whenever a column changes. That is drift where one column alone varies more than rows at
    # random do, and repetition where most do, which takes some columns to be seen.
    sizes = np.array(window.watched.sizes)
    if np.log(sizes).sum() > np.log(max(1, window.n_rows)) or np.count_nonzero(sizes > 1) >= COLUMNS_THAT_TELL:
        most_copies = most_copies_per_row(window, reference)
        copies, sure, error = excess_row_repeats(window, reference, most_copies)
        is_likely = copies > REPEATS_ARE_LIKELY * np.hypot(error, max(1, window.n_rows) ** -0.5)
        repeats = window_row_repeats(window, reference, error, most_copies, is_likely)
    distinct = (window.n_rows - sum(repeats.bursts)) / (repeats.inflation if is_likely else 1.0)
    repeats = repeats._replace(inflation=alike * repeats.inflation)
    findings = _quality(window, reference, repeats)
    findings += [_of("repeats", None, sure, "points")] if window.n_rows else []
    mix: Floats | None = None
    if labels is None:
        mix = estimated_class_shares(window, reference)
    elif labels.window[:-1].any() and labels.reference[:-1].any():  # else all classes are unknown on one side
        mix = smoothed_shares(labels.window[:-1])
    notes: dict[str, object] = {
        "repeats_per_row": copies,
        "inflation": repeats.inflation,
        "bursts": list(repeats.bursts),
        "class_mix": None,
    }
    families = family_drift_findings(window, reference, repeats)
    if mix is not None:
        before = reference_class_shares(reference) if labels is None else smoothed_shares(labels.reference[:-1])
        residual = family_drift_findings(window, reference_with_class_shares(reference, mix), repeats)
        whole, rest = (sum(one.effect for one in some) for some in (families, residual))
        explained = 0.0 if whole <= 0 else max(0.0, 1 - rest / whole)
        of_mix: dict[str, object] = {"estimate": mix.tolist(), "reference": before.tolist(), "explains": explained}
        if labels is None:
            compared = class_share_test(window, reference, mix, before, repeats)
        else:
            of_mix["is_counted"] = True
            compared = counted_class_share_test(labels.window[:-1], labels.reference[:-1], mix, before, repeats)
        if compared.nats >= limits.nats and explained >= 0.5:
            of_mix["is_cause"] = True
        notes["class_mix"] = of_mix
        findings.append(_of("class_mix", None, compared, "nats"))
    if labels is not None:
        rates = ((int(each[-1]), int(each.sum())) for each in labels)
        unknown = g_test_rates(*next(rates), *next(rates), repeats)
        findings.append(_of("unseen", window.watched.schema.target, unknown, "points"))
    findings += families + _of_predictions(window, reference, repeats)
    q = two_sample_tests.benjamini_hochberg_q_values([one.p_value for one in findings])
    least = {"nats": limits.nats, "points": limits.points}
    return [
        replace(
            one,
            q_value=float(q_value),
            is_alarming=bool(
                q_value < limits.q
                and abs(one.effect) >= least[one.unit]
                and (window.n_rows if one.kind == "repeats" else distinct) >= LEAST_ROWS
            ),
        )
        for one, q_value in zip(findings, q, strict=True)
    ], notes


def family_drift_findings(window: ServedCounts, reference: Reference, repeats: Repeats = INDEPENDENT) -> list[Finding]:
    """Test each column's values given its parents; missing and unknown values have their own tests."""
    findings = []
    for i, name in enumerate(window.watched.names):
        own, other = known_value_counts(window, window.family(i), i), known_value_counts(window, reference.family(i), i)
        is_fair = i not in reference.chosen_here
        compared = g_test_tables(own, other, repeats) if is_fair else two_sample_tests.NOTHING
        findings.append(_of("family", name, compared, "nats"))
    return findings


def known_value_counts(window: ServedCounts, table: Integers, i: int) -> Integers:
    """Return the columns of a table [context, code] that are known training values."""
    attribute = window.watched.codes.attributes[i]
    return table[:, attribute.first_code : attribute.n_values]


def _of(kind: str, column: str | None, compared: Comparison, unit: str) -> Finding:
    return Finding(kind, column, compared.nats, unit, compared.p_value, compared.n_rows)


def _quality(window: ServedCounts, reference: Reference, repeats: Repeats) -> list[Finding]:
    """Test the rates of absent, missing, unseen, rare and out-of-range values."""
    own, other = attribute_quality_rates(window), _reference_rates(window, reference)
    findings = []
    for i, name in enumerate(window.watched.names):
        for kind in QUALITY:
            if kind in own[i] and kind in other[i]:
                compared = g_test_rates(*own[i][kind], *other[i][kind], repeats)
                findings.append(_of(kind, name, compared, "points"))
    return findings


Rates = dict[str, tuple[int, int]]


def attribute_quality_rates(counts: ServedCounts) -> list[Rates]:
    """Count, for each attribute, the absent, missing, unseen, rare and out-of-range rows and the rows they are counted
    among.
    """
    statuses, n_rows = counts.block("statuses"), counts.n_rows
    rates = []
    for i, attribute in enumerate(counts.watched.codes.attributes):
        marginal = counts.marginal(i)
        coded = int(marginal[0]) if attribute.has_missing else 0
        own: Rates = {
            "absent": (int(statuses[i, ABSENT]), n_rows),
            "missing": (int(statuses[i, NULL]) + coded, n_rows),
            "unseen": (int(statuses[i, UNSEEN]), n_rows),
        }
        if attribute.n_folded:
            own["rare"] = (int(marginal[attribute.n_values - 1]), n_rows)
        if attribute.quantiles:
            compared = int(statuses[i, COMPARED])
            own["out_of_range"] = (int(statuses[i, BELOW] + statuses[i, ABOVE]), compared)
            own["low_tail"], own["high_tail"] = ((int(statuses[i, tail]), compared) for tail in (LOW_TAIL, HIGH_TAIL))
        rates.append(own)
    return rates


def _reference_rates(window: ServedCounts, reference: Reference) -> list[Rates]:
    if not reference.knows_ranges and reference.served is not None:
        return attribute_quality_rates(reference.served)
    rates = []
    scored = None if reference.served is None else attribute_quality_rates(reference.served)
    for i, attribute in enumerate(window.watched.codes.attributes):
        marginal = reference.family(i).sum(axis=0)
        n = int(marginal.sum()) or reference.n_rows
        own: Rates = {"absent": (0, n), "unseen": (0, n), "out_of_range": (0, n)}
        if (
            scored is not None and attribute.quantiles
        ):  # a quantile is of all rows of its value, which training did not count
            own |= {tail: scored[i][tail] for tail in ("low_tail", "high_tail")}
        is_counted = marginal.any()  # of a column that the network leaves out, nothing is known
        if is_counted:
            own["missing"] = (int(marginal[0]) if attribute.has_missing else 0, n)
        if is_counted and attribute.n_folded and i not in reference.chosen_here:
            own["rare"] = (int(marginal[attribute.n_values - 1]), n)
        rates.append(own)
    return rates


def excess_row_repeats(
    window: ServedCounts, reference: Reference, most_copies: float
) -> tuple[float, Comparison, float]:
    """Estimate the mean number of copies of a row beyond those in the reference; returns it with its test and standard
    error.

    Rows are counted by 16 bits of their hashes, and sums of squares of these counts estimate the repetition.
    Natural repetition, which few columns with few values have, is subtracted as measured in the reference, or
    else as the upper bound from the training counts.

    References
    ----------
    Alon, Matias, Szegedy (1999), section 2.2 (the second frequency moment from hashed counts).
    """
    n = window.n_rows
    if n < 2:
        return 0.0, two_sample_tests.NOTHING, 0.0
    own, noise, other = _pairs(window), 2.0 / REPEAT_CELLS, _natural_pairs(window, reference, most_copies)
    if other is None:
        return 0.0, two_sample_tests.NOTHING, 0.0
    tolerance = FAMILY_TOLERANCE
    if reference.served is not None and reference.served.n_rows > 1:
        n_other = reference.served.n_rows
        noise += 2.0 / REPEAT_CELLS * (n / n_other) ** 2
        # Both are U-statistics of pairs; of rows that are equal by nature, P(three are equal) says how they vary.
        spread = max(0.0, _triples(reference.served) - other**2)
        noise += 2 * other + 4 * n**2 * spread * (1 / n + 1 / n_other)
        tolerance = REPEAT_TOLERANCE
    excess = n * max(0.0, own - other)
    # The reference knows what is natural no better than this: it is itself one sample, or a model.
    z = n * (own - other) / np.sqrt(noise + 1.0 / n + (tolerance * n * other) ** 2)
    p = float(scipy.special.chdtrc(1, z * z) / 2) if z > 0 else 1.0
    return float(excess), Comparison(p, 100 * float(excess), z, 1, n), float(np.sqrt(noise))


def window_row_repeats(
    window: ServedCounts, reference: Reference, error: float, most_copies: float, is_likely: bool
) -> Repeats:
    """Find the bursts of a window, if repeats are likely, and the inflation of its counts by other repeats.

    The inflation assumes the largest plausible number of copies, some standard errors above the estimate.

    A burst is a row that occurred at least four times as often as its hash suggests, and a dozen times more.
    Tables whose rows repeat naturally, such as those with few columns, have no bursts, because new values would
    look like them.
    """
    n, cells = window.n_rows, window.block("repeats").astype(np.float64)
    served = reference.served
    natural = max(0.0, _natural_pairs(window, reference, most_copies) or 0.0)
    bursts: list[int] = []
    if is_likely and n * natural < 1:
        expected = np.full(cells.size, n / cells.size)
        if served is not None and served.n_rows:
            expected = np.maximum(expected, served.block("repeats") * (n / served.n_rows))
        burst_cells = np.flatnonzero(cells > 4 * (expected + 3))
        burst_cells = burst_cells[np.argsort(-cells[burst_cells], kind="stable")][:MOST_BURSTS]
        bursts = np.rint(cells[burst_cells] - expected[burst_cells]).astype(np.int64).tolist()
        cells[burst_cells] = expected[burst_cells]
    rest = max(2.0, n - sum(bursts))
    copies = max(0.0, rest * (_pairs_of(cells, rest) - natural) + HIDDEN_REPEATS * error)
    return Repeats(min(1.0 + copies, most_copies), tuple(bursts))


def _natural_pairs(window: ServedCounts, reference: Reference, most_copies: float) -> float | None:
    """Return the probability that two reference rows are equal; None if unknown.

    Training counts give only an upper bound, because equal rows agree in each family. Columns may copy one
    another, so the probability under independence would be too small.

    If columns have lost variety, such as a number that is always beyond the last cut point, rows agree more
    often; this is not counted as repetition.
    """
    if reference.served is not None and reference.served.n_rows > 1:
        natural = _pairs(reference.served)
    elif counted := [table for i in range(len(reference.families)) if (table := reference.family(i)).any()]:
        natural = min(map(_agreement, counted))
    else:
        return None
    if window.n_rows * (_pairs(window) - natural) > most_copies:
        natural *= _lost_variety(window, reference)
    return min(1.0, natural)


def _lost_variety(window: ServedCounts, reference: Reference) -> float:
    """Return the factor by which rows of the window agree more often than those of the reference, assuming independent
    columns; at least 1.
    """
    factor = 0.0
    for i in range(len(window.watched.sizes)):
        factor += np.log(_agreement(window.marginal(i)) / _agreement(reference.family(i).sum(axis=0)))
    return float(np.exp(max(0.0, factor)))


def most_copies_per_row(window: ServedCounts, reference: Reference) -> float:
    """Bound the copies of each row by the dispersion of the window's column counts.

    Copies multiply G of every column, so the median of G over its degrees of freedom bounds them, whatever
    happened to fewer than half of the columns.
    """
    ratios = []
    for i in range(len(window.watched.sizes)):
        if i in reference.chosen_here:
            continue
        own, other = (
            known_value_counts(window, table, i).sum(axis=0) for table in (window.family(i), reference.family(i))
        )
        compared = g_test_counts(own, other)
        if compared.degrees:
            ratios.append(compared.g / compared.degrees)
    return MOST_DISPERSION * max(1.0, float(np.median(ratios))) if ratios else np.inf


def _agreement(counts: Integers) -> float:
    """Return the probability that two rows have the same value."""
    n = int(counts.sum())
    return float(((counts / n) ** 2).sum()) if n else 1.0


def _pairs(counts: ServedCounts) -> float:
    """Estimate the probability that two rows are equal."""
    return _pairs_of(counts.block("repeats").astype(np.float64), counts.n_rows)


def _triples(counts: ServedCounts) -> float:
    """Estimate the probability that three rows are equal, or share a hash by chance."""
    cells, n = counts.block("repeats").astype(np.float64), float(counts.n_rows)
    return float((cells * (cells - 1) * (cells - 2)).sum()) / max(1.0, n * (n - 1) * (n - 2))


def _pairs_of(cells: Floats, n: float) -> float:
    if n < 2:  # one row has no other that it could equal
        return 0.0
    together = float((cells * (cells - 1)).sum()) / (n * (n - 1.0))
    return (together - 1.0 / REPEAT_CELLS) / (1.0 - 1.0 / REPEAT_CELLS)


def _of_predictions(window: ServedCounts, reference: Reference, repeats: Repeats) -> list[Finding]:
    """Test predicted classes with their confidence, and surprise, if the same model scored the reference."""
    other = reference.served
    if other is None:
        return []
    findings = []
    if window.watched.n_classes:
        compared = g_test_counts(window.block("confidence").ravel(), other.block("confidence").ravel(), repeats)
        findings.append(_of("confidence", None, compared, "nats"))
    if window.watched.member is not None:
        compared = g_test_counts(window.block("surprise"), other.block("surprise"), repeats)
        findings.append(_of("surprise", None, compared, "nats"))
    return findings


def estimated_prediction_metrics(counts: ServedCounts) -> dict[str, float | None]:
    """Estimate accuracy and log loss from the predictions themselves; valid only while P(class | attributes) holds."""
    n = int(counts.block("predicted")[0])
    sums, surprises = counts.block("sums"), counts.block("surprise sums")
    n_surprised = int(counts.block("surprise").sum())
    if not n or not counts.watched.n_classes:
        accuracy = log_loss = None
    else:
        accuracy, log_loss = (float(total) / FIXED_POINT / n for total in sums[-2:])
    surprise = float(surprises[0]) / FIXED_POINT / n_surprised if n_surprised else None
    return {"accuracy": accuracy, "log_loss": log_loss, "surprise_nats": surprise, "impossible": float(surprises[1])}
