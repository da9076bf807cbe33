"""One answer about one window: rows, tests, causes, columns."""

from __future__ import annotations

from dataclasses import asdict

from learners.errors import EmptyData
from learners.monitoring.causes import causes
from learners.monitoring.drift_tests import QUALITY, Finding, Limits, compare, estimates, known_part, rates
from learners.monitoring.reference import Reference
from learners.monitoring.served_counts import REQUESTS, SERVED, ServedCounts
from learners.monitoring.two_sample import compare_counts, jensen_shannon, population_stability

CAVEAT = "holds only while P(class | attributes) is as in training"


def drift_report(window: ServedCounts, reference: Reference, limits: Limits = Limits()) -> dict[str, object]:  # noqa: B008
    """What a window shows against a reference, as JSON can hold it.

    Returns dict: `rows`, `reference`, `is_drifting`, `causes` (likeliest first), `alarms`, `columns`, `class_mix`,
    `repeats`, `estimated` and `drift_nats`, the sum over all families.
    Raises EmptyData if the window or the reference has no rows.
    """
    if not window.n_rows:
        raise EmptyData("There are no rows to compare.")
    if not reference.n_rows:
        raise EmptyData(f"The reference {reference.name!r} has no rows.")
    findings, notes = compare(window, reference, limits)
    found = causes(window, reference, findings, notes)
    alarms = [one for one in findings if one.is_alarming]
    rows = window.block("rows")
    return {
        "rows": {"counted": window.n_rows, "served": int(rows[SERVED]), "requests": int(rows[REQUESTS])},
        "reference": {"name": reference.name, "rows": reference.n_rows},
        "limits": asdict(limits),
        "is_drifting": bool(alarms),
        "causes": [asdict(cause) for cause in found],
        "alarms": [asdict(one) for one in sorted(alarms, key=lambda one: -abs(one.effect))],
        "columns": columns_of(window, reference, findings),
        "class_mix": _mix(window, notes),
        "repeats_per_row": notes["repeats_per_row"],
        "estimated": estimates(window) | {"caveat": CAVEAT},
        "drift_nats": sum(one.effect for one in findings if one.kind == "family"),
    }


def columns_of(window: ServedCounts, reference: Reference, findings: list[Finding]) -> list[dict[str, object]]:
    """Each column with the tests about it, the one with the largest effect first."""
    of_column: dict[str, dict[str, Finding]] = {}
    for one in findings:
        if one.column is not None:
            of_column.setdefault(one.column, {})[one.kind] = one
    columns = []
    for i, (name, own_rates) in enumerate(zip(window.watched.names, rates(window), strict=True)):
        tests = of_column.get(name, {})
        own, other = (known_part(window, table, i).sum(axis=0) for table in (window.family(i), reference.family(i)))
        alone = compare_counts(own, other)
        family = tests["family"]
        columns.append(
            {
                "column": name,
                "parents": [window.watched.names[parent] for parent in window.watched.parents[i]],
                "family_nats": family.effect,
                "family_q": family.q_value,
                "marginal_nats": alone.nats,
                "marginal_p": alone.p_value,
                "psi": population_stability(own, other),
                "js": jensen_shannon(own, other),
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
        "is_cause": bool(mix.get("is_cause", False)),
    }
