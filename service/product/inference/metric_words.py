"""Display names of metrics, intervals and counts; files, REST and JSON keep the names on the left."""

import re

from learners.wording import points_text
from service.requests.json_values import JSONMapping

METRIC_WORDS = {
    "zero_one_loss": "share of wrong answers",
    "rmse": "root mean squared error",
    "log_loss": "log loss",
    "log_loss_error": "standard error of the log loss",
    "class_shares_log_loss": "log loss of the class shares",
    "largest_class_share": "share of the largest class",
    "brier": "Brier score",
    "ece": "calibration error",
    "log_likelihood": "log likelihood per row",
    "log_likelihood_error": "standard error of the log likelihood",
    "n_impossible": "rows of probability zero",
    "n_test_rows": "rows measured",
    "n_unknown_class_rows": "rows of unknown classes",
    "evaluated_on": "measured on",
    "train_s": "seconds of training alone",
    "rows_per_s": "rows per second",
}
ROWS_MEASURED = {
    "hold-out": "rows kept back",
    "newest rows": "newest rows, kept back",
    "last rows": "last rows, kept back",
    "newest rows, learned afterwards": "newest rows, measured before they were learned",
    "last rows, learned afterwards": "last rows, measured before they were learned",
    "test data": "rows of test data",
}
RATE_WORDS = {  # of the rates of a column in a report on drift; others are called so
    "out_of_range": "out of range",
    "low_tail": "at the lowest values of training",
    "high_tail": "at the highest values of training",
}
INTERVAL = re.compile(r"\((\S+), (\S+)\]")


def interval_words(label: str) -> str:
    """Format the label of an interval: "(-inf, 86.35]" becomes "≤ 86.35"; other labels are unchanged."""
    interval = INTERVAL.fullmatch(label)
    if interval is None:
        return label
    low, high = interval.groups()
    if low == "-inf":
        return "any number" if high == "inf" else f"≤ {high}"
    return f"> {low}" if high == "inf" else f"{low} to {high}"


def largest_rate_change_words(column: JSONMapping) -> str:
    """Describe the largest change among a column's rates, such as "missing +1.6 points" (percentage points); empty if
    none changed.
    """
    changed = [(kind, rate["points"]) for kind, rate in column["rates"].items() if rate["points"]]
    if not changed:
        return ""
    kind, points = max(changed, key=lambda one: abs(one[1]))
    return f"{RATE_WORDS.get(kind, kind)} {points_text(points)} points"
