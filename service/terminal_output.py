"""How the command line speaks: tables or JSON on standard output, progress and errors on standard error."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from learners.errors import redact_uri_secrets
from service.requests.json_values import JSONMapping, JSONObject
from service.settings import Settings
from service.startup import (
    relax_gc_for_startup,
    restore_gc_after_startup,
    skip_pandas_import,
    skip_scipy_linalg_import,
    skip_sklearn_in_xgboost,
)
from storage.files.workspace_layout import Layout

if TYPE_CHECKING:
    from service.workspace import Workspace

EXIT_FAILED = 1
COMPILING = "[dim]compiling kernels, which happens once on a machine[/]"
EXIT_INTERNAL = 70  # EX_SOFTWARE of sysexits.h
LONGEST_WORD = 40  # that a table keeps whole

out = Console()
err = Console(stderr=True)


def command_line_settings(workspace: Path | None = None, **options: Any) -> Settings:
    """The settings of the environment, with what was given on the command line instead; logs go to standard error."""
    send_logs_to_stderr()
    return _settings(workspace, options)


def _settings(workspace: Path | None, options: JSONMapping) -> Settings:
    chosen = {name: value for name, value in {"workspace": workspace, **options}.items() if value is not None}
    return Settings(**chosen)


def send_logs_to_stderr() -> None:
    """Send logs there. Commands that log nothing do without: structlog takes a tenth of a second to import."""
    import structlog

    # Standard error as it is when a line is written: who calls us may have put another in its place.
    structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))


def open_existing_workspace(workspace: Path | None) -> Workspace:
    """The workspace of a command that makes none: a mistyped name shall not look like an empty registry (InvalidRequest)."""
    settings = _settings(workspace, {})
    # A control database elsewhere is named by its URL, and then what is mistyped is noticed there.
    if settings.control_url is None and not Layout(settings.workspace).models.is_dir():
        from service.requests.problems import InvalidRequest

        raise InvalidRequest(
            f"There is no workspace at {settings.workspace}: name one with --workspace or FEWPASS_WORKSPACE. "
            "fewpass train and fewpass serve make a new one.",
            workspace=str(settings.workspace),
        )
    from service.workspace import Workspace

    return Workspace(settings)


def print_error(error: Exception, as_json: bool) -> int:
    """Say what went wrong in one line; returns the exit code."""
    from service.requests import problems

    problem = problems.problem_from_error(error)
    is_expected = problems.is_expected_error(error)
    if not is_expected:
        problem = dataclasses.replace(
            problem, detail=f"{type(error).__name__}: {error} (FEWPASS_DEBUG=1 shows the traceback)"
        )
    if as_json:
        typer.echo(json.dumps(problem.body(), default=str), err=True)
    else:
        text = " ".join(problem.detail.split())
        err.print(f"[bold red]error[/]: {escape_rich_markup(text)}", soft_wrap=True, highlight=False)
    return EXIT_FAILED if is_expected else EXIT_INTERNAL


def escape_rich_markup(text: str) -> str:
    """Text with rich's markup made harmless."""
    from rich.markup import escape as rich_escape

    return rich_escape(text)


def print_json_document(value: Any) -> None:
    """Print one JSON document; NaN, which JSON lacks, becomes null."""
    typer.echo(json.dumps(json_ready_value(value), indent=2, default=str, allow_nan=False))


def print_json_and_exit(value: Any, as_json: bool) -> None:
    """Where JSON is to be printed, print a value as JSON, and end the command."""
    if as_json:
        print_json_document(value)
        raise typer.Exit


def print_json_or_text(value: Any, text: str, as_json: bool) -> None:
    """Print a value as JSON, or what it means in a sentence."""
    if as_json:
        print_json_document(value)
    else:
        out.print(text)


def print_written_rows(output: str, facts: JSONMapping, started: float, as_json: bool) -> None:
    """Say where rows were written, without secrets of the address, and in what time since one of `time.perf_counter`."""
    seconds, place = time.perf_counter() - started, redact_uri_secrets(output)
    summary = {"out": place, **facts, "seconds": seconds, "rows_per_s": facts["n_rows"] / max(seconds, 1e-9)}
    print_json_or_text(
        summary, f"[bold]{escape_rich_markup(place)}[/]: {facts['n_rows']:,} rows in {seconds:.2f} s", as_json
    )


def print_warning(message: str) -> None:
    """Print a warning to standard error."""
    err.print(f"[yellow]warning:[/] {escape_rich_markup(message)}")


def json_ready_value(value: Any) -> Any:
    """Dataclasses, mappings and tuples as JSON has them."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: json_ready_value(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): json_ready_value(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [json_ready_value(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def build_rich_table(title: str | None, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """A table; numbers stand right. Words are not broken, but for those that take most of a line."""
    table = Table(title=title, title_justify="left", header_style="bold")
    cells = [[escape_rich_markup(table_cell_text(value)) for value in row] for row in rows]
    for index, column in enumerate(columns):
        is_number = bool(rows) and all(isinstance(row[index], int | float) or row[index] is None for row in rows)
        words = [word for cell in (column, *(row[index] for row in cells)) for word in cell.split()]
        longest = max((len(word) for word in words if len(word) <= LONGEST_WORD), default=1)
        table.add_column(
            escape_rich_markup(column), justify="right" if is_number else "left", overflow="fold", min_width=longest
        )
    for row in cells:
        table.add_row(*row)
    return table


def print_table(title: str | None, columns: Sequence[str], rows: Iterable[Sequence[Any]], empty: str = "none") -> None:
    """Print a table, or what to say if it has no rows; its rows one after the other where a line has too little room."""
    rows = list(rows)
    table = build_rich_table(title, columns, rows)
    narrowest = 1 + sum(3 + (column.min_width or 0) for column in table.columns)  # with its lines and blanks
    if rows and narrowest > out.width:
        if title is not None:
            out.print(f"[bold]{title}[/]")
        print_rows(columns, rows)
    else:
        out.print(table if rows else f"[dim]{empty}[/]")


def print_json_or_table(
    items: Sequence[Any], as_json: bool, columns: Sequence[str], rows: Iterable[Sequence[Any]], empty: str = "none"
) -> None:
    """Print items as JSON, or as a table with a row for each."""
    if as_json:
        print_json_document(items)
    else:
        print_table(None, columns, rows, empty)


def print_records(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows that may have many columns: as a table, else with a line for each column, else one after the other."""
    lines = [[column, *(row[index] for row in rows)] for index, column in enumerate(columns)]
    wide = build_rich_table(None, columns, rows)
    tall = build_rich_table(None, ["column", *map(str, range(1, len(rows) + 1))], lines)
    fitting = next((table for table in (wide, tall) if _fits(table)), None)
    if fitting is not None:
        out.print(fitting)
    else:
        print_rows(columns, rows)


def print_rows(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows one after the other, with a line for each column."""
    margin = max(map(len, columns))
    for number, row in enumerate(rows, 1):
        out.print(f"[bold]row {number}[/]")
        for column, value in zip(columns, row, strict=True):
            out.print(
                f"  {escape_rich_markup(column):{margin}}  {escape_rich_markup(table_cell_text(value))}",
                highlight=False,
                soft_wrap=True,
            )


def _fits(table: Table) -> bool:
    """Whether no cell of a table would be broken."""
    boundless = out.options.update(max_width=100_000)
    return Measurement.get(out, boundless, table).maximum <= out.width


def table_cell_text(value: Any) -> str:
    """A value as a cell shows it."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:%Y-%m-%d %H:%M}" if isinstance(value, datetime) else nested_value_text(value)


def nested_value_text(value: Any) -> str:
    """A value within others: `name=value, …` for a mapping, without what is not set; sentences follow one another."""
    if isinstance(value, Mapping):
        set_ones = {name: item for name, item in value.items() if item not in (None, "", [], {})}
        if any(isinstance(item, Mapping) for item in set_ones.values()):
            return "; ".join(f"{name}: {nested_value_text(item)}" for name, item in set_ones.items())
        return ", ".join(f"{name}={nested_value_text(item)}" for name, item in set_ones.items())
    if isinstance(value, list | tuple):
        are_named = any(isinstance(item, Mapping) for item in value)
        are_sentences = any(isinstance(item, str) and item.endswith(".") for item in value)
        return ("; " if are_named else " " if are_sentences else ", ").join(map(nested_value_text, value))
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


class CommandProcess:
    """Whether this process is a command, and nobody else's; and whether it is still loading what it needs."""

    is_own = False
    is_loading = False

    @classmethod
    def begin(cls) -> None:
        """Load."""
        cls.is_own = cls.is_loading = True
        relax_gc_for_startup()
        skip_sklearn_in_xgboost()

    @classmethod
    def loaded(cls) -> None:
        """Work: from now on there may be garbage."""
        if cls.is_loading:
            cls.is_loading = False
            restore_gc_after_startup()


@contextmanager
def terminal_progress_bar(is_shown: bool) -> Iterator[Callable[[JSONObject], None]]:
    """A bar on standard error with what is done, how much of it, and the time left; yields the report to call.

    It needs a terminal, and is not shown with --json.
    """
    from learners.kernels.jit import notify_on_kernel_compilation
    from learners.passes.progress_bar import console_progress_bar, progress_amount_text

    send_logs_to_stderr()
    if CommandProcess.is_own:
        skip_pandas_import()
    bar = console_progress_bar(err, is_shown=is_shown and err.is_terminal)

    def tell() -> None:
        if CommandProcess.is_own:
            skip_scipy_linalg_import()
        if is_shown:
            err.print(COMPILING)

    with notify_on_kernel_compilation(tell), bar as progress:
        task = progress.add_task("starting", total=None, amount="")

        def report(at: JSONObject) -> None:
            CommandProcess.loaded()
            n_done, n_total = at.get("rows_done", 0), at.get("rows_total") or None
            words = progress_amount_text(at.get("unit", "rows"), n_done, n_total, at.get("rows_per_s"))
            progress.update(task, description=progress_text(at), completed=n_done, total=n_total, amount=words)

        yield report


def progress_text(progress: JSONMapping) -> str:
    """Progress in words: "learn, pass 2 of 3 (pairs)"; what is done between two passes has no number."""
    words = str(progress.get("step", ""))
    if progress.get("pass_number") and progress.get("unit", "rows") == "rows":
        words += f", pass {progress['pass_number']}"
        words += f" of {progress['n_passes']}" if progress.get("n_passes") else ""
    stage = ": ".join(str(progress[name]) for name in ("stage", "note") if progress.get(name))
    return f"{words} ({stage})" if stage else words
