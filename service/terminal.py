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

from learners.errors import redact
from service.requests.json_values import JSONMapping, JSONObject
from service.settings import Settings
from service.startup import begin_loading, end_loading, spare_blas, spare_pandas
from storage.files.workspace_layout import Layout

if TYPE_CHECKING:
    from service.workspace import Workspace

EXIT_FAILED = 1
COMPILING = "[dim]compiling kernels, which happens once on a machine[/]"
EXIT_INTERNAL = 70  # EX_SOFTWARE of sysexits.h

out = Console()
err = Console(stderr=True)


def settings_of(workspace: Path | None = None, **given: Any) -> Settings:
    """The settings of the environment, with what was given on the command line instead; logs go to standard error."""
    logs_to_standard_error()
    return _settings(workspace, given)


def _settings(workspace: Path | None, given: JSONMapping) -> Settings:
    chosen = {name: value for name, value in {"workspace": workspace, **given}.items() if value is not None}
    return Settings(**chosen)


def logs_to_standard_error() -> None:
    """Send logs there. Commands that log nothing do without: structlog takes a tenth of a second to import."""
    import structlog

    # Standard error as it is when a line is written: who calls us may have put another in its place.
    structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))


def open_workspace(workspace: Path | None) -> Workspace:
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


def show_error(error: Exception, as_json: bool) -> int:
    """Say what went wrong in one line; returns the exit code."""
    from service.requests import problems

    problem = problems.problem_of(error)
    is_expected = problems.is_expected(error)
    if not is_expected:
        problem = dataclasses.replace(
            problem, detail=f"{type(error).__name__}: {error} (FEWPASS_DEBUG=1 shows the traceback)"
        )
    if as_json:
        typer.echo(json.dumps(problem.body(), default=str), err=True)
    else:
        text = " ".join(problem.detail.split())
        err.print(f"[bold red]error[/]: {escape(text)}", soft_wrap=True, highlight=False)
    return EXIT_FAILED if is_expected else EXIT_INTERNAL


def escape(text: str) -> str:
    """Text with rich's markup made harmless."""
    from rich.markup import escape as rich_escape

    return rich_escape(text)


def show_json(value: Any) -> None:
    """Print one JSON document; NaN, which JSON lacks, becomes null."""
    typer.echo(json.dumps(jsonable(value), indent=2, default=str, allow_nan=False))


def json_instead(value: Any, as_json: bool) -> None:
    """Where JSON is to be printed, print a value as JSON, and end the command."""
    if as_json:
        show_json(value)
        raise typer.Exit


def say(value: Any, text: str, as_json: bool) -> None:
    """Print a value as JSON, or what it means in a sentence."""
    if as_json:
        show_json(value)
    else:
        out.print(text)


def show_rows(output: str, facts: JSONMapping, started: float, as_json: bool) -> None:
    """Say where rows were written, without secrets of the address, and in what time since one of `time.perf_counter`."""
    seconds, place = time.perf_counter() - started, redact(output)
    summary = {"out": place, **facts, "seconds": seconds, "rows_per_s": facts["n_rows"] / max(seconds, 1e-9)}
    say(summary, f"[bold]{escape(place)}[/]: {facts['n_rows']:,} rows in {seconds:.2f} s", as_json)


def warn(message: str) -> None:
    """Print a warning to standard error."""
    err.print(f"[yellow]warning:[/] {escape(message)}")


def jsonable(value: Any) -> Any:
    """Dataclasses, mappings and tuples as JSON has them."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: jsonable(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): jsonable(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [jsonable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def table_of(title: str | None, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """A table; numbers stand right."""
    table = Table(title=title, title_justify="left", header_style="bold")
    for index, column in enumerate(columns):
        is_number = bool(rows) and all(isinstance(row[index], int | float) or row[index] is None for row in rows)
        table.add_column(escape(column), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(text_of(value)) for value in row))
    return table


def show_table(title: str | None, columns: Sequence[str], rows: Iterable[Sequence[Any]], empty: str = "none") -> None:
    """Print a table, or what to say if it has no rows."""
    rows = list(rows)
    out.print(table_of(title, columns, rows) if rows else f"[dim]{empty}[/]")


def show_list(
    items: Sequence[Any], as_json: bool, columns: Sequence[str], rows: Iterable[Sequence[Any]], empty: str = "none"
) -> None:
    """Print items as JSON, or as a table with a row for each."""
    if as_json:
        show_json(items)
    else:
        show_table(None, columns, rows, empty)


def show_records(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows that may have many columns: as a table, else with a line for each column, else one after the other."""
    lines = [[column, *(row[index] for row in rows)] for index, column in enumerate(columns)]
    wide = table_of(None, columns, rows)
    tall = table_of(None, ["column", *map(str, range(1, len(rows) + 1))], lines)
    fitting = next((table for table in (wide, tall) if _fits(table)), None)
    if fitting is not None:
        out.print(fitting)
        return
    margin = max(map(len, columns))
    for number, row in enumerate(rows, 1):
        out.print(f"[bold]row {number}[/]")
        for column, value in zip(columns, row, strict=True):
            out.print(f"  {escape(column):{margin}}  {escape(text_of(value))}", highlight=False, soft_wrap=True)


def _fits(table: Table) -> bool:
    """Whether no cell of a table would be broken."""
    boundless = out.options.update(max_width=100_000)
    return Measurement.get(out, boundless, table).maximum <= out.width


def text_of(value: Any) -> str:
    """A value as a cell shows it."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:%Y-%m-%d %H:%M}" if isinstance(value, datetime) else words_of(value)


def words_of(value: Any) -> str:
    """A value within others: `name=value, …` for a mapping, without what is not set."""
    if isinstance(value, Mapping):
        pairs = ((name, item) for name, item in value.items() if item not in (None, "", [], {}))
        return ", ".join(f"{name}={words_of(item)}" for name, item in pairs)
    if isinstance(value, list | tuple):
        return ("; " if any(isinstance(item, Mapping) for item in value) else ", ").join(map(words_of, value))
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
        begin_loading()

    @classmethod
    def loaded(cls) -> None:
        """Work: from now on there may be garbage."""
        if cls.is_loading:
            cls.is_loading = False
            end_loading()


@contextmanager
def progress_bar(is_shown: bool) -> Iterator[Callable[[JSONObject], None]]:
    """A bar on standard error with what is done, how much of it, and the time left; yields the report to call.

    It needs a terminal, and is not shown with --json.
    """
    from learners.kernels.jit import noticing_compilation
    from learners.passes.progress_bar import amount, bar_on

    logs_to_standard_error()
    if CommandProcess.is_own:
        spare_pandas()
    bar = bar_on(err, is_shown=is_shown and err.is_terminal)

    def tell() -> None:
        if CommandProcess.is_own:
            spare_blas()
        if is_shown:
            err.print(COMPILING)

    with noticing_compilation(tell), bar as progress:
        task = progress.add_task("starting", total=None, amount="")

        def report(at: JSONObject) -> None:
            CommandProcess.loaded()
            n_done, n_total = at.get("rows_done", 0), at.get("rows_total") or None
            words = amount(at.get("unit", "rows"), n_done, n_total, at.get("rows_per_s"))
            progress.update(task, description=describe(at), completed=n_done, total=n_total, amount=words)

        yield report


def describe(progress: JSONMapping) -> str:
    """Progress in words: "learn, pass 2 of 3 (pairs)"; what is done between two passes has no number."""
    words = str(progress.get("step", ""))
    if progress.get("pass_number") and progress.get("unit", "rows") == "rows":
        words += f", pass {progress['pass_number']}"
        words += f" of {progress['n_passes']}" if progress.get("n_passes") else ""
    stage = ": ".join(str(progress[name]) for name in ("stage", "note") if progress.get(name))
    return f"{words} ({stage})" if stage else words
