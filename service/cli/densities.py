"""`fewpass score | impute`: rows of files by a density, in this process, without a server."""

import time
from typing import Annotated, cast

import typer

from learners.models.estimation import Average
from learners.models.query import How
from service import product
from service.cli.shared_options import ForceOption, JsonOption, OutputOption, Reference, UrisArgument, WorkspaceOption
from service.requests.json_values import JSONObject
from service.terminal import escape, opened, out, progress_bar, show_rows, warn


def score(
    model: Reference,
    uris: UrisArgument,
    output: OutputOption,
    keep: Annotated[list[str] | None, typer.Option("--keep", help="Input column to copy; may be repeated.")] = None,
    average: Annotated[
        bool, typer.Option("--average", help="Of a posterior over structures: average over its graphs.")
    ] = False,
    force: ForceOption = False,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Tell how probable a model holds each row: log likelihood and surprise rank (1: the most surprising)."""
    started = time.perf_counter()
    with opened(workspace) as here, progress_bar(not json_output) as report:
        over = Average() if average else None
        facts = product.score(here, model, uris, output, over, keep=keep or [], replace=force, report=report, warn=warn)
    show_rows(output, facts, started, json_output)
    if not json_output:
        mean = facts["log_likelihood"]
        out.print("no row is possible" if mean is None else f"mean log likelihood {mean:.4f} a row")
        if facts["n_impossible"]:
            out.print(f"{facts['n_impossible']:,} rows have probability zero")
        if average:
            out.print(_of_average(facts))
        if facts["densities"]:
            out.print(f"densities, not probabilities, of: {escape(', '.join(facts['densities']))}")


def _of_average(facts: JSONObject) -> str:
    """How graphs were averaged, in words."""
    own = facts["average"]
    how = (
        "exactly" if own["is_exact"] else f"by {own['n']:,} draws (standard error {own.get('standard_error', 0.0):.2g})"
    )
    n = facts["n_incomplete"]
    lacking = f"; {n:,} rows lack a value or have one that training never saw" if n else ""
    return f"averaged over graphs {how}{lacking}"


def impute(
    model: Reference,
    uris: UrisArgument,
    output: OutputOption,
    how: Annotated[str, typer.Option("--how", help="mode, mean (of numbers; else the mode) or draw.")] = "mode",
    columns: Annotated[
        list[str] | None,
        typer.Option("--of", help="A column to fill; may be repeated. By default all of the model that the data has."),
    ] = None,
    draws: Annotated[int, typer.Option("--draws", help="Completed rows for each row, with --how draw.")] = 1,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of draws.")] = 0,
    force: ForceOption = False,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Fill missing cells from their distribution given the rest of the row; all columns are copied."""
    from service.product.inference.density_rows import Filling

    filling = Filling(cast("How", how), tuple(columns or ()), draws, seed)
    started = time.perf_counter()
    with opened(workspace) as here, progress_bar(not json_output) as report:
        facts = product.impute(here, model, uris, output, filling, replace=force, report=report, warn=warn)
    show_rows(output, facts, started, json_output)
    if not json_output:
        for name, n in facts["n_filled"].items():
            out.print(f"{escape(name)}: {n:,} cells")
        if facts["n_left"]:
            out.print(
                f"{facts['n_left']:,} cells are left: of impossible rows, or of values without a name of their own"
            )
