"""What a training, a refresh and an evaluation have come to, in sentences and small tables."""

from service.product.inference.metric_words import METRIC_WORDS, ROWS_MEASURED
from service.requests.json_values import JSONMapping, JSONObject
from service.terminal import err, escape, jsonable, out, show_table, text_of

COMPARED = ("log_loss", "zero_one_loss", "rmse", "brier", "ece", "n_test_rows")


def verdict(metrics: JSONMapping) -> str:
    """The metrics that say most, as one line; empty if nothing was evaluated."""
    rows = f"{metrics.get('n_test_rows', 0):,} {ROWS_MEASURED.get(str(metrics.get('evaluated_on')), 'rows measured')}"
    if metrics.get("zero_one_loss") is not None:
        floor = metrics.get("class_shares_log_loss")
        beside = "" if floor is None else f" (class shares {floor:.3f})"
        return f"right {1 - metrics['zero_one_loss']:.1%}, log loss {_digits(metrics['log_loss'])}{beside}, {rows}"
    if metrics.get("log_likelihood") is not None:
        return f"log likelihood {_digits(metrics['log_likelihood'])} per row, {rows}"
    return ""


def _digits(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def next_steps(name: str, learner: str, target: str | None, workspace: str | None) -> str:
    """Which commands come next for a new model."""
    where = "" if workspace is None else f" -w {workspace}"
    if learner == "xgboost":
        first = f"fewpass predict {name} FILE --out scored.parquet{where}"
    elif target is None:
        first = (
            f"fewpass models structure {name}{where}" if learner == "orders" else f"fewpass models show {name}{where}"
        )
    else:
        first = f"fewpass query {name} --of {target}{where}"
    return f"next: {first} · fewpass serve{where}"


def what_was_read(passes: list[JSONObject]) -> str:
    """How many rows an update has read, and how many it knew; of all passes the one that read most."""
    if not passes:
        return "No row was read: every count was stored."
    most = max(passes, key=lambda told: told["n_rows_read"])
    if not most["n_rows_reused"]:
        return f"read {most['n_rows_read']:,} rows"
    return f"read {most['n_rows_read']:,} new rows; {most['n_rows_reused']:,} came from stored counts"


def show_metrics(metrics: JSONMapping) -> None:
    """Print the metrics of one evaluation."""
    if not metrics:
        err.print("[dim]nothing was evaluated (--holdout 0 and no --test)[/]")
        return
    rows = [
        [METRIC_WORDS.get(name, name), ROWS_MEASURED.get(str(value), text_of(jsonable(value)))]
        for name, value in metrics.items()
    ]
    show_table(None, ["metric", "value"], rows)


def show_beside(told: JSONObject) -> None:
    """Print the metrics of several models side by side, and what each has more than the first."""
    names = [f"{each['model']}@{each['version']}" for each in told["models"]]
    rows = [
        [METRIC_WORDS[metric], *(text_of(each.get(metric)) for each in told["models"])]
        for metric in COMPARED
        if metric in told["models"][0]
    ]
    show_table(None, ["metric", *names], rows)
    for name, difference in zip(names[1:], told["differences"], strict=True):
        mean, error = difference["log_loss"], difference["standard_error"]
        size = f"by {abs(mean):.4f} ± {error:.4f} (one standard error)"
        if abs(mean) <= 2 * error:
            words = f"{name} and {names[0]} differ {size}: no more than chance explains"
        else:
            words = f"{name} has the {'lower' if mean < 0 else 'higher'} log loss, {size}"
        out.print(escape(words), highlight=False, soft_wrap=True)
