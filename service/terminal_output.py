"""Output of the command line: tables or JSON on standard output, progress and errors on standard error."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table

from learners.errors import ALL_AT_ONCE, redact_uri_secrets
from service.requests.json_values import JSONMapping, JSONObject
from service.settings import Settings
from service.startup import (
    configure_once_imported,
    relax_gc_for_startup,
    restore_gc_after_startup,
    skip_pandas_import,
    skip_scipy_linalg_import,
    skip_unused_imports,
)
from storage.files.workspace_layout import Layout

if TYPE_CHECKING:
    from service.workspace import Workspace

EXIT_FAILED = 1
COMPILING = "[dim]compiling kernels, which happens once on a machine[/]"
EXIT_INTERNAL = 70  # EX_SOFTWARE of sysexits.h
LONGEST_WORD = 40  # that a table keeps whole
PLAIN_LINE_S = 30.0  # between two lines of progress without a terminal

# Controls of a terminal, and marks that change the direction of text; a table may hold them in names and values.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class _Terminal(Console):
    """Prints `\N{REPLACEMENT CHARACTER}` for controls in a text, so that no name of a column or file commands the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            if segment.control is None and _CONTROLS.search(segment.text):
                yield segment._replace(text=_CONTROLS.sub("\N{REPLACEMENT CHARACTER}", segment.text))
            else:
                yield segment


out = _Terminal()
err = _Terminal(stderr=True)


def command_line_settings(workspace: Path | None = None, **options: Any) -> Settings:
    """Return the environment's settings, overridden by command-line options; logs go to standard error."""
    send_logs_to_stderr()
    return _settings(workspace, options)


def _settings(workspace: Path | None, options: JSONMapping) -> Settings:
    chosen = {name: value for name, value in {"workspace": workspace, **options}.items() if value is not None}
    return Settings(**chosen)


def send_logs_to_stderr() -> None:
    """Send logs to standard error. Few commands log, and structlog is imported by the first line: that takes .04 s."""
    configure_once_imported("structlog", _log_to_stderr)


def _log_to_stderr(structlog: Any) -> None:
    # Standard error as it is when a line is written: who calls us may have put another in its place.
    structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))


def open_existing_workspace(workspace: Path | None) -> Workspace:
    """Open a workspace for a command that must not create one: a mistyped name must not look like an empty registry
    (InvalidRequest).
    """
    settings = _settings(workspace, {})
    # A control database elsewhere is named by its URL, and then what is mistyped is noticed there.
    if settings.control_url is None and not Layout(settings.workspace).models.is_dir():
        from learners.errors import setting
        from service.requests.problems import InvalidRequest

        raise InvalidRequest(
            f"There is no workspace at {settings.workspace}: name one, as in {setting('workspace', 'FOLDER')}, or set FEWPASS_WORKSPACE. "
            "fewpass train, fewpass serve and fewpass.publish make a new one.",
            workspace=str(settings.workspace),
        )
    from service.workspace import Workspace

    return Workspace(settings)


def print_error(error: Exception, as_json: bool) -> int:
    """Print an error in one line and return the exit code."""
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
    """Escape rich's markup in a text."""
    from rich.markup import escape as rich_escape

    return rich_escape(text)


def print_json_document(value: Any) -> None:
    """Print one JSON document; NaN, which JSON lacks, becomes null."""
    typer.echo(json.dumps(json_ready_value(value), indent=2, default=str, allow_nan=False))


def print_json_and_exit(value: Any, as_json: bool) -> None:
    """Print a value as JSON and end the command, if JSON is requested."""
    if as_json:
        print_json_document(value)
        raise typer.Exit


def print_json_or_text(value: Any, text: str, as_json: bool) -> None:
    """Print a value as JSON, or the text that describes it."""
    if as_json:
        print_json_document(value)
    else:
        out.print(text)


def print_written_rows(output: str, facts: JSONMapping, started: float, as_json: bool) -> None:
    """Print where rows were written, without secrets of the address, and the seconds since `started`, a
    `time.perf_counter` value.
    """
    seconds, place = time.perf_counter() - started, redact_uri_secrets(output)
    summary = {"out": place, **facts, "seconds": seconds, "rows_per_s": facts["n_rows"] / max(seconds, 1e-9)}
    print_json_or_text(
        summary, f"[bold]{escape_rich_markup(place)}[/]: {facts['n_rows']:,} rows in {seconds:.2f} s", as_json
    )


def print_warning(message: str) -> None:
    """Print a warning to standard error; advice on options for all columns is no warning of its own."""
    label = "" if message.startswith(ALL_AT_ONCE) else "[yellow]warning:[/] "
    err.print(f"{label}{escape_rich_markup(message)}", soft_wrap=True)  # so that it can be copied


def json_ready_value(value: Any) -> Any:
    """Convert dataclasses, mappings and tuples to JSON values."""
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
    """Build a table with numbers aligned right. Words are not broken unless they take most of a line."""
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
    """Print a table, or `empty` if it has no rows; its rows one below the other if a line is too narrow."""
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
    """Print items as JSON, or as a table with one row each."""
    if as_json:
        print_json_document(items)
    else:
        print_table(None, columns, rows, empty)


def print_records(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows with possibly many columns: as a table, else with one line per column, else one below the other."""
    lines = [[column, *(row[index] for row in rows)] for index, column in enumerate(columns)]
    wide = build_rich_table(None, columns, rows)
    tall = build_rich_table(None, ["column", *map(str, range(1, len(rows) + 1))], lines)
    fitting = next((table for table in (wide, tall) if _fits(table)), None)
    if fitting is not None:
        out.print(fitting)
    else:
        print_rows(columns, rows)


def print_rows(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows one below the other, with one line per column."""
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
    """Return whether a table fits without breaking a cell."""
    boundless = out.options.update(max_width=100_000)
    return Measurement.get(out, boundless, table).maximum <= out.width


def table_cell_text(value: Any) -> str:
    """Format a value for a table cell."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:%Y-%m-%d %H:%M}" if isinstance(value, datetime) else nested_value_text(value)


def nested_value_text(value: Any) -> str:
    """Format a nested value: `name=value, …` for a mapping, without unset values; sentences are joined."""
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
    """State of a command process: whether this process belongs to a command, and whether it is still loading modules."""

    is_own = False
    is_loading = False

    @classmethod
    def begin(cls) -> None:
        """Begin the loading phase: garbage collection is rare."""
        cls.is_own = cls.is_loading = True
        relax_gc_for_startup()
        skip_unused_imports()

    @classmethod
    def loaded(cls) -> None:
        """End the loading phase: restore garbage collection."""
        if cls.is_loading:
            cls.is_loading = False
            restore_gc_after_startup()


@contextmanager
def terminal_progress_bar(is_shown: bool) -> Iterator[Callable[[JSONObject], None]]:
    """Show a progress bar on standard error with step, amount done and time left; yields the report function.

    Without a terminal, a plain line every half minute says how far it is. Nothing is shown with --json.
    """
    from learners.kernels.jit import notify_on_kernel_compilation
    from learners.passes.progress_bar import console_progress_bar, progress_amount_text

    send_logs_to_stderr()
    if CommandProcess.is_own:
        skip_pandas_import()
    bar = console_progress_bar(err, is_shown=is_shown and err.is_terminal)
    latest = ["starting"]

    def tell() -> None:
        if CommandProcess.is_own:
            skip_scipy_linalg_import()
        if is_shown:
            err.print(COMPILING)

    lines = _plain_progress_lines(latest) if is_shown and not err.is_terminal else nullcontext()
    with notify_on_kernel_compilation(tell), bar as progress, lines:
        task = progress.add_task("starting", total=None, amount="")

        def report(at: JSONObject) -> None:
            CommandProcess.loaded()
            n_done, n_total = at.get("rows_done", 0), at.get("rows_total") or None
            words = progress_amount_text(at.get("unit", "rows"), n_done, n_total, at.get("rows_per_s"))
            latest[0] = f"{progress_text(at)}{words and f', {words}'}"
            progress.update(task, description=progress_text(at), completed=n_done, total=n_total, amount=words)

        yield report


@contextmanager
def _plain_progress_lines(latest: Sequence[str]) -> Iterator[None]:
    """Print the last of the reports every `PLAIN_LINE_S` seconds, also while none arrives."""
    started, is_done = time.perf_counter(), threading.Event()

    def print_lines() -> None:
        while not is_done.wait(PLAIN_LINE_S):
            seconds = time.perf_counter() - started
            err.print(f"after {seconds:,.0f} s: {escape_rich_markup(latest[-1])}", soft_wrap=True, highlight=False)

    printing = threading.Thread(target=print_lines, name="progress lines", daemon=True)
    printing.start()
    try:
        yield
    finally:
        is_done.set()
        printing.join()


def progress_text(progress: JSONMapping) -> str:
    """Describe progress: "learn, pass 2 of 3 (pairs)"; work between two passes has no number."""
    words = str(progress.get("step", ""))
    if progress.get("pass_number") and progress.get("unit", "rows") == "rows":
        words += f", pass {progress['pass_number']}"
        words += f" of {progress['n_passes']}" if progress.get("n_passes") else ""
    stage = ": ".join(str(progress[name]) for name in ("stage", "note") if progress.get(name))
    return f"{words} ({stage})" if stage else words
