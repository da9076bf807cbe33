"""`fewpass drift`: is the data still what the model was trained on?"""

from typing import Annotated

import typer

from service import product
from service.requests.json_values import JSONObject
from service.terminal import (
    JsonOption,
    Reference,
    UrisArgument,
    WorkspaceOption,
    escape,
    opened,
    out,
    progress_bar,
    show_json,
    show_table,
)

EXIT_DRIFT = 3
MOST_COLUMNS = 20


def drift(
    model: Reference,
    uris: UrisArgument,
    against: Annotated[
        list[str] | None,
        typer.Option("--against", help="Other files to compare with; may be repeated.", show_default="the training"),
    ] = None,
    q: Annotated[
        float, typer.Option("--q", help="Greatest rate of false discoveries of an alarm.", min=0, max=1)
    ] = 0.01,
    nats: Annotated[float, typer.Option("--nats", help="Least change of an alarm, as log loss a row.", min=0)] = 0.01,
    points: Annotated[float, typer.Option("--points", help="Least change of a rate of an alarm.", min=0)] = 1.0,
    check: Annotated[bool, typer.Option("--check", help=f"Exit with {EXIT_DRIFT} if there is an alarm.")] = False,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Compare rows with what a model was trained on, in one pass: what has changed, and what the cause is."""
    from learners.monitoring.drift_tests import Limits

    limits = Limits(q, nats, points)
    with opened(workspace) as here, progress_bar(not json_output) as report:
        found = product.drift(here, model, uris, against=against or (), limits=limits, report=report)
    if json_output:
        show_json(found)
    else:
        show_drift(found)
    if check and found["is_drifting"]:
        raise typer.Exit(EXIT_DRIFT)


def show_drift(found: JSONObject) -> None:
    """Causes first, then the columns with the largest effects."""
    rows, reference = found["rows"], found["reference"]
    for warning in found.get("warnings", []):
        out.print(f"[yellow]warning[/]: {escape(warning)}", highlight=False)
    out.print(f"{rows['counted']:,} rows against {escape(reference['name'])} ({reference['rows']:,} rows)")
    if not found["causes"]:
        out.print("[green]no drift[/]: no difference is both sure and large enough")
    for number, cause in enumerate(found["causes"], 1):
        out.print(f"[bold]{number}.[/] {escape(cause['words'])}", highlight=False)
    shown = [
        [column["column"], column["family_nats"], column["family_q"], column["psi"], column["js"], _worst(column)]
        for column in found["columns"][:MOST_COLUMNS]
    ]
    show_table(None, ["column", "change", "q", "PSI", "JS", "quality"], shown)
    if len(found["columns"]) > MOST_COLUMNS:
        out.print(f"The {MOST_COLUMNS} largest of {len(found['columns']):,} columns; --json tells all.")
    estimated = found["estimated"]
    if estimated["accuracy"] is not None:
        out.print(
            f"estimated accuracy {estimated['accuracy']:.4f}, log loss {estimated['log_loss']:.4f}: {estimated['caveat']}"
        )


def _worst(column: JSONObject) -> str:
    """The rate that has changed most, in points."""
    changed = [(kind, rate["points"]) for kind, rate in column["rates"].items() if rate["points"]]
    if not changed:
        return ""
    kind, points = max(changed, key=lambda one: abs(one[1]))
    return f"{kind} {points:+.2g}"
