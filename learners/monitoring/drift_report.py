"""Drift report of one window: rows, tests, columns, and the most likely causes first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations

import numpy as np

from learners.errors import EmptyData
from learners.kernels.arrays import Floats, Integers
from learners.monitoring.drift_findings import (
    LEAST_ROWS,
    QUALITY,
    Finding,
    Limits,
    attribute_quality_rates,
    estimated_prediction_metrics,
    known_value_counts,
    run_drift_tests,
)
from learners.monitoring.label_counts import Labels
from learners.monitoring.reference import Reference
from learners.monitoring.served_counts import REQUESTS, SERVED, ServedCounts
from learners.monitoring.two_sample_tests import g_test_counts, jensen_shannon_distance, population_stability_index
from learners.schema.schema import Attribute
from learners.wording import points_text

CAVEAT = "right only if rows with the same attributes have the same class shares as in training"
MOST_PAIRED = 12
TAILS = ("low_tail", "high_tail")
SWAP_SHARE = 0.5  # of the divergence that is left when two columns are taken for each other
ALIKE = (2, 3, 5, 10)  # rows that may belong together, such as those of one customer
OF_CHILD = 0.99  # a child's family speaks of its parent a little less than the parent's own


@dataclass(frozen=True)
class Cause:
    """One common explanation of several alarms."""

    kind: str  # a kind of `Finding`; or swapped, clipped, covariate, mechanism
    columns: tuple[str, ...]
    effect: float
    unit: str  # "nats" or "points"
    words: str  # one sentence for people


def drift_causes(
    window: ServedCounts, reference: Reference, findings: Sequence[Finding], notes: Mapping[str, object]
) -> list[Cause]:
    """Explain the alarms among the findings of `drift_findings.run_drift_tests`, most likely cause first; empty without
    alarms.
    """
    alarms = [one for one in findings if one.is_alarming]
    moved = [one for one in alarms if one.kind == "family"]
    swapped = _swapped(window, reference, moved, alarms)
    named = {column for cause in swapped for column in cause.columns}
    times = {attribute.name for attribute in window.watched.schema.attributes if attribute.is_time}
    quality = sorted(
        (one for one in alarms if one.kind in QUALITY and one.kind not in TAILS and one.column not in named),
        key=lambda one: -abs(one.effect),
    )
    # A tail is part of a column's values: it is told only where the column's own test does not tell more.
    in_tails = [one for one in alarms if one.kind in TAILS and one.column not in {other.column for other in moved}]
    causes = [*swapped, *(_of_quality(one, one.column in times) for one in quality)]
    repeats = [one for one in alarms if one.kind == "repeats"]
    repeating = [Cause("repeats", (), one.effect, "points", _REPEATS.format(one.effect / 100)) for one in repeats]
    if not causes and not moved:  # else codes repeat because a column has lost its variety
        causes += repeating
    mix = notes.get("class_mix")
    shifted = [one for one in alarms if one.kind == "class_mix"]
    is_counted = isinstance(mix, dict) and mix.get("is_counted")  # by labels: sure whatever else has changed
    if shifted and isinstance(mix, dict) and (is_counted or (not causes and (mix.get("is_cause") or not moved))):
        words = "the class shares have changed"
        words += _most_changed_class(window, mix) if is_counted else ""
        words += f"; that explains {mix['explains']:.0%} of what the columns moved" if mix.get("is_cause") else ""
        causes.append(Cause("class_mix", (), shifted[0].effect, "nats", words))
    causes += [
        _of_family(window, reference, name, effect)
        for name, effect in drifted_columns(window, moved)
        if name not in named
    ]
    causes += [cause for cause in repeating if cause not in causes]
    causes += [
        _of_quality(one, one.column in times)
        for one in sorted(in_tails, key=lambda one: -abs(one.effect))
        if one.column not in named
    ]
    for one in alarms:
        if one.kind == "confidence":
            words = "predicted classes and their confidence have changed"
            causes.append(Cause(one.kind, (), one.effect, "nats", words))
        elif one.kind == "surprise":
            causes.append(Cause(one.kind, (), one.effect, "nats", _surprise_words(window, reference)))
    return causes


def _most_changed_class(window: ServedCounts, mix: Mapping[str, Sequence[float]]) -> str:
    own, before = np.array(mix["estimate"]), np.array(mix["reference"])
    place = int(np.abs(own - before).argmax())
    name = window.watched.schema.classes[place]
    return f": {name} in {100 * own[place]:.3g} % of the rows ({100 * before[place]:.3g} % in the reference)"


GOES_ON = 90.0  # points of rows outside the range of training, beyond which a column seems to grow with time
_REPEATS = "rows repeat: on average, a row as the model encodes it has {:,.1f} more copies than in the reference"
_WORDS = {
    "absent": "is absent",
    "missing": "is missing",
    "unseen": "has values that training never saw",
    "rare": "has rare values",
    "low_tail": "has numbers as low as the lowest of training",
    "high_tail": "has numbers as high as the highest of training",
    "out_of_range": "has numbers outside the range of training",
}


def _surprise_words(window: ServedCounts, reference: Reference) -> str:
    """Describe whether the model finds the rows rarer or more common than the reference."""
    assert reference.served is not None, "else the test has not run"
    after, before = (estimated_prediction_metrics(each)["surprise_nats"] for each in (window, reference.served))
    if after is None or before is None or f"{after:.3g}" == f"{before:.3g}":
        return "the model gives whole rows other probabilities than in the reference"
    rarer = "rarer" if after > before else "more common"
    return f"the model finds whole rows {rarer}: surprise {after:.3g} nats per row, {before:.3g} in the reference"


def _of_quality(one: Finding, is_time: bool) -> Cause:
    more = "more" if one.effect > 0 else "fewer"
    what = _WORDS[one.kind].replace("numbers", "times") if is_time else _WORDS[one.kind]
    words = f"{one.column} {what} in {more} rows ({points_text(one.effect)} percentage points)"
    if one.kind == "out_of_range" and one.effect > 0:
        if is_time:
            words += ": these are other days than those of training, or wrong times"
        elif one.effect > GOES_ON:
            words += ": the number grows with time, or has another unit"
        else:
            words += ": another unit, or a broken sensor"
    return Cause(one.kind, (str(one.column),), one.effect, "points", words)


def drifted_columns(window: ServedCounts, moved: Sequence[Finding]) -> list[tuple[str, float]]:
    """Rank the columns by the drift in the families that they belong to, largest first.

    A change of P(column | parents) affects one family; a late or replaced column also affects its children's
    families. Only columns whose own family changed are returned, each with the effect of that family.
    """
    effects = {str(one.column): one.effect for one in moved}
    names = window.watched.names
    score = dict(effects)
    for i, parents in enumerate(window.watched.parents):
        for parent in parents:
            if names[parent] in score:
                score[names[parent]] += OF_CHILD * effects.get(names[i], 0.0)
    return sorted(effects.items(), key=lambda item: -score[item[0]])


def _size(nats: float) -> str:
    """Describe a divergence as the additional log loss per row under the reference."""
    return f"{nats:.3g} of log loss per row"


def _of_family(window: ServedCounts, reference: Reference, name: str, effect: float) -> Cause:
    i = window.watched.names.index(name)
    parents = [window.watched.names[parent] for parent in window.watched.parents[i]]
    own, other = (known_value_counts(window, table, i).sum(axis=0) for table in (window.family(i), reference.family(i)))
    clipped = _clipped(window.watched.codes.attributes[i], own, other)
    if clipped is not None:
        return Cause("clipped", (name,), effect, "nats", f"{name} never {clipped} any more: it looks cut off there")
    if not parents:
        return Cause("covariate", (name,), effect, "nats", f"the values of {name} have changed: {_size(effect)}")
    words = f"{name} given {', '.join(parents)} has changed: {_size(effect)}"
    return Cause("mechanism", (name,), effect, "nats", words)


def _clipped(attribute: Attribute, own: Integers, other: Integers) -> str | None:
    """Detect whether all numbers beyond one interval moved into it while nothing else changed; returns a description or
    None.
    """
    if (
        attribute.kind != "numeric"
        or attribute.part is not None
        or own.sum() < 100
        or other.sum() < 100
        or own.size < 3
    ):
        return None
    p, q = own / own.sum(), other / other.sum()
    for values, beyond, words in ((p, q, "above"), (p[::-1], q[::-1], "below")):
        if attribute.is_time and words == "below":  # later rows begin later
            continue
        last = int(np.flatnonzero(values > 0)[-1])
        if not values[:last].any():  # all in one interval: the column moved, and nothing shows a limit
            continue
        gone = float(beyond[last + 1 :].sum())
        if gone > 0.01 and abs(values[last] - beyond[last:].sum()) < 0.25 * gone + 0.01:
            cut = attribute.cuts[last] if words == "above" else attribute.cuts[own.size - 2 - last]
            return f"goes {words} {attribute.number_text(cut)}"
    return None


def _swapped(
    window: ServedCounts, reference: Reference, moved: Sequence[Finding], alarms: Sequence[Finding]
) -> list[Cause]:
    """Find pairs of columns that each look like the other did in training."""
    names = window.watched.names
    of_quality = [one.column for one in alarms if one.kind in ("unseen", "out_of_range") and one.column in names]
    by_size = [str(one.column) for one in sorted(moved, key=lambda one: -one.effect)]
    suspects = list(dict.fromkeys([*map(str, of_quality), *by_size]))[:MOST_PAIRED]
    causes: list[Cause] = []
    in_pairs: set[str] = set()
    for a, b in combinations(suspects, 2):
        if in_pairs & {a, b}:
            continue
        i, j = names.index(a), names.index(b)
        crossed = _distance(window, reference, i, j) + _distance(window, reference, j, i)
        before = _distance(window, reference, i, i) + _distance(window, reference, j, j)
        if before > 0.02 and crossed < SWAP_SHARE * before:
            in_pairs |= {a, b}
            words = f"{a} and {b} look swapped: each has the other's values"
            causes.append(Cause("swapped", (a, b), before, "nats", words))
    return causes


def _distance(window: ServedCounts, reference: Reference, i: int, j: int) -> float:
    """Return the divergence of column i's values from the training values of column j, as codes of i; infinite if not
    comparable.
    """
    expected = swapped_column_shares(window, reference, i, j)
    if expected is None:
        return float("inf")
    own = window.marginal(i).astype(np.float64)
    own = own / max(1.0, own.sum())
    expected = (expected + 1e-4) / (expected.sum() + 1e-4 * expected.size)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.where(own > 0, own * np.log(own / expected), 0.0).sum())


def swapped_column_shares(window: ServedCounts, reference: Reference, i: int, j: int) -> Floats | None:
    """Return the shares of column i's codes if it held the training values of column j, (n_values + 1,) float64."""
    of, held = window.watched.codes.attributes[i], window.watched.codes.attributes[j]
    counts = reference.family(j).sum(axis=0).astype(np.float64)
    if i == j:
        return counts / max(1.0, counts.sum())
    if of.kind != held.kind or not counts.sum():
        return None
    counts /= counts.sum()
    shares = np.zeros(of.n_values + 1)
    if of.kind == "nominal":
        place = {value: k + of.first_code for k, value in enumerate(of.values)}
        for k, value in enumerate(held.values):
            shares[place.get(value, of.unseen_code)] += counts[k + held.first_code]
        shares[of.unseen_code] += counts[held.n_values - 1] if held.n_folded else 0.0
    else:
        if not held.quantiles:
            return None
        first = of.first_code
        steps = np.linspace(0, 1, len(held.quantiles))
        below = np.interp(np.array(of.cuts), np.array(held.quantiles), steps, left=0.0, right=1.0)
        regular = np.diff(np.concatenate([[0.0], below, [1.0]]))
        shares[first : first + regular.size] = regular * (1 - (counts[0] if held.has_missing else 0.0))
    if held.has_missing:
        shares[of.missing_code] += counts[0]
    return shares


def drift_report(
    window: ServedCounts,
    reference: Reference,
    limits: Limits = Limits(),  # noqa: B008
    labels: Labels | None = None,
) -> dict[str, object]:
    """Compare a window with a reference, as JSON-compatible values.

    `labels`: counted classes of both; without them, the class shares of the window are estimated.

    Returns dict: `rows`, `reference`, `is_drifting` (whether there are causes; None, and `why`, where the window has fewer than
    `LEAST_ROWS` rows), `causes` (likeliest first), `rows_alike` and `note` (see `rows_alike_without_alarm`), `alarms`, `columns`, `class_mix`, `repeats_per_row`, `estimated` and
    `drift_nats`, the sum over all families.
    Raises EmptyData if the window or the reference has no rows.
    """
    if not window.n_rows:
        raise EmptyData("There are no rows to compare.")
    if not reference.n_rows:
        raise EmptyData(f"The reference {reference.name!r} has no rows.")
    findings, notes = run_drift_tests(window, reference, limits, labels=labels)
    causes = drift_causes(window, reference, findings, notes)
    is_enough = window.n_rows >= LEAST_ROWS
    is_doubtful = any(cause.kind != "repeats" for cause in causes)
    alike = rows_alike_without_alarm(window, reference, limits, labels) if is_doubtful else None
    alarms = [one for one in findings if one.is_alarming]
    rows = window.block("rows")
    return {
        "rows": {"counted": window.n_rows, "served": int(rows[SERVED]), "requests": int(rows[REQUESTS])},
        "reference": {"name": reference.name, "rows": reference.n_rows},
        "limits": asdict(limits),
        "is_drifting": bool(causes) if is_enough else None,
        **({} if is_enough else {"why": f"{window.n_rows} rows are too few: a test needs {LEAST_ROWS}"}),
        "causes": [asdict(cause) for cause in causes],
        "rows_alike": alike,
        **({} if alike is None else {"note": _ALIKE.format(alike)}),
        "alarms": [asdict(one) for one in sorted(alarms, key=lambda one: -abs(one.effect))],
        "columns": drift_report_columns(window, reference, findings),
        "class_mix": _mix(window, notes),
        "repeats_per_row": notes["repeats_per_row"],
        "estimated": estimated_prediction_metrics(window) | {"caveat": CAVEAT},
        "drift_nats": sum(one.effect for one in findings if one.kind == "family"),
    }


_ALIKE = (
    "significant only if rows are independent: if {} rows or more belong together, such as those of one customer, this is not an alarm. "
    "Compare with rows that belong together in the same way"
)


def rows_alike_without_alarm(
    window: ServedCounts, reference: Reference, limits: Limits, labels: Labels | None = None
) -> int | None:
    """Return how many rows have to belong together, at most, for an alarm to vanish; None if it would stay.

    Rows of one customer depend on each other without being equal, and every column varies as much more as such rows are many.
    No test of one window tells this from drift. That rows repeat does not count.
    """
    for alike in ALIKE:
        findings, notes = run_drift_tests(window, reference, limits, alike, labels)
        if all(cause.kind == "repeats" for cause in drift_causes(window, reference, findings, notes)):
            return alike
    return None


def drift_report_columns(
    window: ServedCounts, reference: Reference, findings: list[Finding]
) -> list[dict[str, object]]:
    """Return each column with its tests, by decreasing effect."""
    of_column: dict[str, dict[str, Finding]] = {}
    for one in findings:
        if one.column is not None:
            of_column.setdefault(one.column, {})[one.kind] = one
    columns = []
    for i, (name, own_rates) in enumerate(zip(window.watched.names, attribute_quality_rates(window), strict=True)):
        tests = of_column.get(name, {})
        own, other = (
            known_value_counts(window, table, i).sum(axis=0) for table in (window.family(i), reference.family(i))
        )
        alone = g_test_counts(own, other)
        family = tests["family"]
        columns.append(
            {
                "column": name,
                "parents": [window.watched.names[parent] for parent in window.watched.parents[i]],
                "family_nats": family.effect,
                "family_q": family.q_value,
                "marginal_nats": alone.nats,
                "marginal_p": alone.p_value,
                "psi": population_stability_index(own, other),
                "js": jensen_shannon_distance(own, other),
                "is_alarming": any(one.is_alarming for one in tests.values()),
                "rates": {
                    kind: {
                        "share": count / n if n else None,
                        "points": tests[kind].effect if kind in tests else None,
                        "q": tests[kind].q_value if kind in tests else None,
                    }
                    for kind, (count, n) in own_rates.items()
                    if kind in QUALITY
                },
            }
        )
    return sorted(columns, key=lambda column: -float(str(column["family_nats"])))


def _mix(window: ServedCounts, notes: dict[str, object]) -> dict[str, object] | None:
    mix = notes.get("class_mix")
    if not isinstance(mix, dict):
        return None
    classes = window.watched.schema.class_values()
    return {
        "classes": classes,
        "estimate": mix["estimate"],
        "reference": mix["reference"],
        "explains": mix["explains"],
        "is_counted": bool(mix.get("is_counted", False)),
        "is_cause": bool(mix.get("is_cause", False)),
    }
