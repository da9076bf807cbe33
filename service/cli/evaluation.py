"""`fewpass compare | bench`: learners compared, and one-line summaries of trainings and evaluations."""

import dataclasses
import shlex
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from learners.wording import count_with_noun
from service.cli.shared_options import (
    ColumnsOption,
    JsonOption,
    Texts,
    check_local_folder_option,
    read_columns_option,
)
from service.product.inference.metric_words import METRIC_WORDS, ROWS_MEASURED
from service.requests.json_values import JSONMapping, JSONObject
from service.terminal_output import (
    err,
    escape_rich_markup,
    json_ready_value,
    out,
    print_json_and_exit,
    print_json_document,
    print_table,
    table_cell_text,
    terminal_progress_bar,
)

if TYPE_CHECKING:
    from learners.evaluation.comparison import Comparison
    from learners.evaluation.crossvalidation import TrialProgress
    from learners.schema import Schema
    from service.operations.bench import Figures

LOG = "outcomes.jsonl"
MOST_NAMED = 10  # data sets whose class column is named because it was not given
MOST_LEFT_OUT = 8  # columns that the end of a training names
COMPARED_LEARNERS = ("auto", "kdb:k=2", "nb", "xgboost")  # unless others are named
COMPARED = ("log_loss", "zero_one_loss", "rmse", "brier", "ece", "n_test_rows")


def compare_command(
    data: Annotated[
        list[str], Argument(help="Folders (each file is a data set), files, globs and URIs (each is one table).")
    ],
    learner: Annotated[
        Texts,
        Option(
            "--learner",
            "-l",
            help="Such as nb, kdb:k=3,m=1 or random-forest; may be repeated.",
            show_default=", ".join(COMPARED_LEARNERS),
        ),
    ] = None,
    repetitions: Annotated[int, Option("--repetitions", "-r", min=1, help="Shuffles of each data set.")] = 5,
    folds: Annotated[int, Option("--folds", min=2, help="Parts of each shuffle; each is the test once.")] = 2,
    seed: Annotated[int, Option("--seed", min=0, help="Seed of the first shuffle.")] = 0,
    train_rows: Annotated[
        list[int] | None,
        Option("--train-rows", min=1, help="Also train on this number of rows, for learning curves; may be repeated."),
    ] = None,
    target: Annotated[
        str | None, Option("--target", "-t", help="The class column.", show_default="class, or the last column")
    ] = None,
    columns: ColumnsOption = None,
    most_rows: Annotated[int | None, Option("--most-rows", min=1, help="Leave out data sets with more rows.")] = None,
    jobs: Annotated[
        int, Option("--jobs", "-j", min=1, help="Number of trials to run at once, each in its own process.")
    ] = 1,
    threads: Annotated[int, Option("--threads", min=1, help="Threads of each process.")] = 1,
    output: Annotated[
        Path | None,
        Option(
            "--out",
            "-o",
            help="Folder for the report, and for outcomes to resume from.",
            callback=check_local_folder_option,
        ),
    ] = None,
    any_code: Annotated[bool, Option("--any-code", help="Keep outcomes of an earlier version of a learner.")] = False,
    picture: Annotated[
        Texts, Option("--picture", help="Learners to plot, as 'A against B'; by default each against the first.")
    ] = None,
    png: Annotated[bool, Option("--png", help="Pictures as PNG instead of SVG.")] = False,
    json_output: JsonOption = False,
) -> None:
    """Compare learners by repeated cross-validation over data sets. A repeated run continues where the last one
    stopped.
    """
    from learners.errors import require_matplotlib
    from learners.evaluation.comparison import compare, learning_curves
    from learners.evaluation.crossvalidation import cross_validate
    from learners.evaluation.report import comparison_report_summary, write_report

    if output is not None:
        require_matplotlib("A report (--out)")
    learners = learner or list(COMPARED_LEARNERS)

    pictures = [_two_learners(text, learners) for text in picture or []]
    with terminal_progress_bar(not json_output) as bar:
        outcomes = cross_validate(
            data,
            learners,
            log=None if output is None else output / LOG,
            repetitions=repetitions,
            n_folds=folds,
            seed=seed,
            limits=[*sorted(set(train_rows or [])), None],
            target=target,
            columns=read_columns_option(columns),
            most_rows=most_rows,
            jobs=jobs,
            threads=threads,
            any_code=any_code,
            on_progress=lambda at: bar(_in_words(at)),
        )
    if target is None and not json_output:
        for name, own in list({each.data: each.target for each in outcomes}.items())[:MOST_NAMED]:
            err.print(f"{escape_rich_markup(name)}: predicting {own!r}; --target names another column", highlight=False)
    compared = compare(outcomes)
    command = shlex.join(["fewpass", *sys.argv[1:]])
    if output is not None:
        first, *others = compared.learners
        write_report(
            output,
            compared,
            title=f"{repetitions} × {folds}-fold cross-validation of {', '.join(compared.learners)}",
            command=command,
            protocol=_protocol(repetitions, folds, seed, threads),
            pictures=pictures or [(other, first) for other in others],
            curves=learning_curves(outcomes) if train_rows else (),
            suffix=".png" if png else ".svg",
        )
    if json_output:
        print_json_document(comparison_report_summary(compared, command))
    else:
        _show(compared, output)
    if compared.failures:
        raise typer.Exit(1)


def bench_command(
    data: Annotated[
        list[str] | None,
        Argument(help="Parquet files, folders, globs or URIs.", show_default="a table from a known network"),
    ] = None,
    target: Annotated[str | None, Option("--target", "-t", help="The class column of the data.")] = None,
    learner: Annotated[
        Texts,
        Option("--learner", "-l", help="Such as nb or kdb:k=3; may be repeated.", show_default="nb, kdb:k=2, xgboost"),
    ] = None,
    rows: Annotated[int, Option("--rows", min=1000, help="Rows to draw from the known network.")] = 500_000,
    rounds: Annotated[int, Option("--rounds", "-r", min=1, help="Number of measurements; the medians are shown.")] = 3,
    threads: Annotated[
        int | None,
        Option("--threads", min=1, help="Threads of each learner.", show_default="FEWPASS_THREADS or all cores"),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Measure how fast learners train and predict on this machine, and their memory, against a plain scan of the same
    files.
    """
    from service.operations.bench import bench_known_network, bench_learners
    from service.settings import Settings, available_threads

    if data and target is None:
        raise typer.BadParameter("name the class column of the data", param_hint="--target")
    learners, options = learner or ["nb", "kdb:k=2", "xgboost"], {"threads": threads or available_threads(Settings())}
    options["rounds"] = rounds
    if data:
        measured = bench_learners(data, str(target), learners, **options)
    else:
        measured = bench_known_network(rows, learners, **options)
    with err.status(f"measuring {', '.join(learners)}"):
        figures = list(measured)
    print_json_and_exit(
        [dataclasses.asdict(each) | {"train_over_scan": each.over_scan()} for each in figures], json_output
    )
    print_table(
        f"{figures[0].n_rows:,} rows, {options['threads']} threads, medians of {rounds}",
        ["learner", "training", "rows/s", "÷ scan", "scored/s", "one row", "memory"],
        [_bench_row(each) for each in figures],
    )


def _bench_row(figures: "Figures") -> list[str]:
    train_s, predict_s = statistics.median(figures.train_s), statistics.median(figures.predict_s)
    middle, least, greatest = figures.over_scan()
    return [
        figures.learner,
        f"{train_s:.3g} s",
        f"{figures.n_rows / train_s:,.0f}",
        f"{middle:.2g} ({least:.2g}–{greatest:.2g})",
        f"{figures.n_rows / predict_s:,.0f}",
        f"{figures.row_us:,.0f} µs",
        f"{figures.peak_rss_mib:,.0f} MiB",
    ]


def _two_learners(text: str, learners: list[str]) -> tuple[str, str]:
    """Parse the two learners of a picture, "A against B", in the spelling of the compared learners."""
    from learners.evaluation.learner_specs import LearnerSpec

    a, separator, b = text.partition(" against ")
    if not separator:
        raise typer.BadParameter(f"{text!r} is not 'A against B'.", param_hint="--picture")
    spelled = {LearnerSpec.parse(learner).text: learner.strip() for learner in reversed(learners)}
    pair = LearnerSpec.parse(a).text, LearnerSpec.parse(b).text
    for name in pair:
        if name not in spelled:
            raise typer.BadParameter(f"{name} is not compared; add --learner {name}.", param_hint="--picture")
    return spelled[pair[0]], spelled[pair[1]]


def _in_words(at: "TrialProgress") -> JSONObject:
    latest = "" if at.latest is None else f"{at.latest.data}, {at.latest.learner}"
    step = f"{at.n_done:,} of {at.n_total:,} trials"
    return {"step": step, "stage": latest, "rows_done": at.n_done, "rows_total": at.n_total, "unit": "trials"}


def _protocol(repetitions: int, folds: int, seed: int, threads: int) -> str:
    from service.version import VERSION

    return (
        f"{repetitions} × {folds}-fold stratified cross-validation (seeds {seed} to {seed + repetitions - 1}). The schema, "
        "with its MDL cut points, and everything else is learned from the training folds alone. RMSE is "
        "sqrt(mean (1 − p(true class))²), ECE has 15 equal-width bins, times are wall-clock seconds a fold, training "
        f"with {threads} thread{'s' if threads > 1 else ''}. fewpass {VERSION}."
    )


def _show(compared: "Comparison", output: Path | None) -> None:
    """Print averages, and each learner against the first."""
    ranks = compared.mean_ranks("rmse")
    first, n_sets = compared.learners[0], len(compared.data_sets)
    rows = []
    for j, name in enumerate(compared.learners):
        versus = compared.versus("rmse", name, first)
        means = [
            _mean(compared.means[score][:, j]) for score in ("zero_one_loss", "rmse", "log_loss", "ece", "train_s")
        ]
        against = [] if n_sets == 1 else ["" if name == first else f"{versus.record} (p {versus.p_value:.2g})"]
        rows.append([name, *means, float(ranks[j]), *against])
    title = f"means over {count_with_noun(n_sets, 'data set')}"
    columns = ["learner", "error", "RMSE", "log loss", "ECE", "train s", "rank"]
    if n_sets > 1:
        columns.append(f"RMSE: wins–draws–losses against {first} (sign test)")
    print_table(title, columns, rows)
    for one in compared.failures[:10]:
        err.print(
            f"[red]failed[/] {escape_rich_markup(one.data)}, {escape_rich_markup(one.learner)}: {escape_rich_markup(str(one.error))}"
        )
    if output is not None:
        out.print(f"report in [bold]{escape_rich_markup(str(output))}[/]")


def _mean(values: Any) -> float | None:
    present = values[values == values]  # noqa: PLR0124 (NaN: the trial failed)
    return float(present.mean()) if present.size else None


def evaluation_summary_line(metrics: JSONMapping) -> str:
    """Summarise the most important metrics in one line; empty if nothing was evaluated."""
    rows = f"{metrics.get('n_test_rows', 0):,} {ROWS_MEASURED.get(str(metrics.get('evaluated_on')), 'rows measured')}"
    if metrics.get("zero_one_loss") is not None:
        floor, largest = metrics.get("class_shares_log_loss"), metrics.get("largest_class_share")
        prior = "" if floor is None else f" (class shares {floor:.3f})"
        majority = "" if largest is None else f" (largest class {largest:.1%})"
        if n_unknown := metrics.get("n_unknown_class_rows"):
            rows += f", {n_unknown:,} of them of classes not seen in training"
        return f"right {1 - metrics['zero_one_loss']:.1%}{majority}, log loss {_with_error(metrics, 'log_loss')}{prior}, {rows}"
    if metrics.get("log_likelihood") is not None:
        return f"log likelihood {_with_error(metrics, 'log_likelihood')} per row, {rows}"
    return ""


def worse_than_shares_warning(metrics: JSONMapping) -> str:
    """Return a warning if the log loss is above that of the class shares by more than two standard errors, else nothing."""
    loss, floor, error = (metrics.get(name) for name in ("log_loss", "class_shares_log_loss", "log_loss_error"))
    if loss is None or floor is None or loss - 2 * (error or 0.0) <= floor:
        return ""
    return (
        "The probabilities are worse than the class shares alone, which use no column: the model has learned chance. Give it more "
        "rows, leave out columns of many values (--columns), or compare learners (fewpass compare)."
    )


def quietly_left_out_line(schema: "Schema") -> str:
    """Name the first columns left out for a reason that no warning gives, by reason; empty if there are none."""
    from learners.schema.schema_inference import HARMLESS

    quiet = [column for column in schema.left_out if column.reason.startswith(HARMLESS)]
    by_reason: dict[str, list[str]] = {}
    for column in quiet[:MOST_LEFT_OUT]:
        by_reason.setdefault(column.reason, []).append(column.name)
    if not quiet:
        return ""
    more = f"; and {len(quiet) - MOST_LEFT_OUT:,} more" if len(quiet) > MOST_LEFT_OUT else ""
    groups = [f"{', '.join(names)} ({reason})" for reason, names in by_reason.items()]
    return f"left out: {'; '.join(groups)}{more}"


def _with_error(metrics: JSONMapping, name: str) -> str:
    """Format a metric with its standard error, which versions of earlier releases lack."""
    value, error = metrics[name], metrics.get(f"{name}_error")
    if value is None:
        return "-"
    return f"{value:.3f}" if error is None else f"{value:.3f} ± {error:.3f}"


def suggested_next_commands(name: str, learner: str, column: str | None, workspace: str | None) -> str:
    """Suggest the next commands for a new model; `column` is the column that a query can ask for, if any."""
    where = "" if workspace is None else f" -w {workspace}"
    if learner == "xgboost":
        first = f"fewpass predict {name} FILE --out scored.parquet{where}"
    elif learner == "orders":
        first = f"fewpass models structure {name}{where}"
    elif column is None:
        first = f"fewpass models show {name}{where}"
    else:
        first = f"fewpass query {name} --of {shlex.quote(column)}{where}"
    return f"next: {first} · fewpass serve{where}"


def rows_read_summary(passes: list[JSONObject], *, is_update: bool = False) -> str:
    """Summarise the rows that a training read and those it took from stored counts, with the passes if only some used
    them.

    `is_update`: say why an update that found no stored counts read all rows.
    """
    if not passes:
        return "No rows were read: all counts were stored."
    most = max(passes, key=lambda account: account["n_rows_read"])
    n_read, knowing = most["n_rows_read"], [account for account in passes if account["n_rows_reused"]]
    if not knowing:
        why = ", since no earlier training has stored counts that fit; the next --update can use the counts of this one"
        return f"read all {n_read:,} rows{why}" if is_update else f"read {n_read:,} rows"
    known = max(account["n_rows_reused"] for account in knowing)
    if most["n_rows_reused"]:
        return f"read {n_read:,} new rows; {known:,} came from stored counts"
    again = " and ".join(str(account["stage"]) for account in passes if not account["n_rows_reused"])
    return f"read all {n_read:,} rows for {again}; otherwise {known:,} came from stored counts"


def forgetting_price_line(price: JSONMapping) -> str:
    """Describe how many rows a retraining without the forgotten rows will read."""
    moved, n = price["cut_points_move"], price["n_rows_again"]
    if not n:
        return f"{price['model']}: no cut point moves, so the counts of these rows are subtracted"
    why = f"cut points of {', '.join(map(repr, moved))} move" if moved else "its learner reads all rows each time"
    return f"{price['model']}: {why}, so {n:,} rows are read again"


def show_evaluation_metrics(metrics: JSONMapping) -> None:
    """Print the metrics of one evaluation."""
    if not metrics:
        err.print("[dim]nothing was evaluated (--holdout 0 and no --test)[/]")
        return
    rows = [
        [METRIC_WORDS.get(name, name), ROWS_MEASURED.get(str(value), table_cell_text(json_ready_value(value)))]
        for name, value in metrics.items()
    ]
    print_table(None, ["metric", "value"], rows)


def show_evaluation_comparison(comparison: JSONObject) -> None:
    """Print the metrics of several models side by side, and their differences from the first."""
    names = [f"{each['model']}@{each['version']}" for each in comparison["models"]]
    last = ["difference"] if len(names) == 2 else []
    rows = [
        [METRIC_WORDS[metric], *map(table_cell_text, values), *(_difference(metric, *values) for _ in last)]
        for metric in COMPARED
        if (values := [each.get(metric) for each in comparison["models"]])[0] is not None
    ]
    print_table(None, ["metric", *names, *last], rows)
    for name, difference in zip(names[1:], comparison["differences"], strict=True):
        mean, error = difference["log_loss"], difference["standard_error"]
        size = f"by {abs(mean):.4f}" + ("" if error is None else f" ± {error:.4f} (one standard error)")
        if mean == 0 and not error:
            words = f"{names[0]} and {name} have the same log loss."
        elif error is None or abs(mean) <= 2 * error:
            words = f"{names[0]} and {name} differ {size} in log loss, which chance alone can explain."
        else:
            words = f"{name} has the {'lower' if mean < 0 else 'higher'} log loss, {size}."
        out.print(escape_rich_markup(words), highlight=False)


def _difference(metric: str, first: float, second: float | None) -> str:
    return "" if second is None or metric == "n_test_rows" else f"{second - first:+.4f}"
