"""Progress bar for training in terminals, notebooks and the command line."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from learners.passes.engine import ROWS, OnProgress
from learners.passes.engine import Progress as PassProgress


class Description(ProgressColumn):
    """Description of the current work, the only column that is shortened if the line is too long."""

    def render(self, task: Task) -> Text:
        """Render the description on one line."""
        return Text(task.description, no_wrap=True, overflow="ellipsis")


def console_progress_bar(console: Console, *, is_shown: bool = True) -> Progress:
    """Create a progress bar with a description, the amount done and the remaining time; its tasks have a field
    `amount`.
    """
    columns = (
        SpinnerColumn(),
        Description(),
        BarColumn(12),
        TextColumn("{task.fields[amount]}"),
        TimeRemainingColumn(compact=True),
    )
    return Progress(*columns, console=console, transient=True, disable=not is_shown)


def progress_amount_text(unit: str, n_done: int, n_total: int | None, per_s: float | None) -> str:
    """Format the amount done: rows as a rate, other units as a count, and no unit as a percentage."""
    if unit == ROWS:
        return f"{per_s:,.0f} rows/s" if per_s else ""
    if not n_total or not n_done:
        return ""
    return f"{n_done:,} of {n_total:,} {unit}" if unit else f"{n_done / n_total:.0%}"


@contextmanager
def show_progress_bar(is_wanted: bool, on_progress: OnProgress | None) -> Iterator[OnProgress | None]:
    """Show a progress bar during training, and report the elapsed time at the end; yields the callback for the driver.

    `on_progress`: called in addition.
    """
    if not is_wanted:
        yield on_progress
        return
    console = Console(stderr=True)
    if console.is_jupyter and find_spec("ipywidgets") is None:  # without which rich shows nothing there but a warning
        console = Console(stderr=True, force_jupyter=False, force_terminal=True)
    started = time.perf_counter()
    with console_progress_bar(console) as bar:
        task = bar.add_task("starting", total=None, amount="")

        def report(at: PassProgress) -> None:
            if on_progress is not None:
                on_progress(at)
            speed = at.rows_per_s if at.unit == ROWS else None
            words = progress_amount_text(at.unit, at.rows_done, at.rows_total, speed)
            bar.update(task, description=at.words, completed=at.rows_done, total=at.rows_total or None, amount=words)

        yield report
    console.print(f"learned in {time.perf_counter() - started:.1f} s", highlight=False)
