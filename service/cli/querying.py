"""`fewpass query`: ask a model's joint distribution."""

import json
from typing import Annotated, Any

import typer
from pydantic import ConfigDict, Field, TypeAdapter

from learners.query import Query
from service.cli.output import JsonOption, WorkspaceOption, existing, out, show_json, show_records, show_table

_QUERIES: TypeAdapter[Any] = TypeAdapter(
    Annotated[Query, Field(discriminator="kind")], config=ConfigDict(extra="forbid")
)
LOGARITHMS = {"log_probability", "log_evidence", "upper_bound"}
ROUNDING = 1e-12
MOST_CELLS = 50
MISSING = "(missing)"
KINDS = "marginal, conditional, moments, sample or map"


def query(
    model: Annotated[str, typer.Argument(help="name, name@version or name@alias.")],
    kind: Annotated[str, typer.Argument(help=f"What to ask for: {KINDS}.")] = "conditional",
    variables: Annotated[
        list[str] | None, typer.Option("--of", help="A column to tell; may be repeated. By default all that can be.")
    ] = None,
    given: Annotated[
        list[str] | None, typer.Option("--given", help="What is known, as column=value; may be repeated.")
    ] = None,
    parameters: Annotated[
        list[str] | None, typer.Option("--set", help="n, seed, joint, solver, k or time_limit_s, as name=value.")
    ] = None,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Ask a model's joint distribution: what is neither given nor asked for is summed out."""
    from service.workspace import Workspace

    asked: dict[str, Any] = {"kind": kind, "evidence": _pairs(given or [])}
    if variables:
        asked["variables"] = variables
    asked |= _pairs(parameters or [])
    with Workspace(existing(workspace)) as here:
        answer = here.query(model, [_QUERIES.validate_python(asked)])[0]
    if json_output:
        show_json(answer)
        return
    _show(answer)


def _pairs(texts: list[str]) -> dict[str, Any]:
    """Names and values; a name that comes twice is a mistake."""
    found: dict[str, Any] = {}
    for name, value in map(_pair, texts):
        if name in found:
            raise typer.BadParameter(f"{name!r} is given twice.")
        found[name] = value
    return found


def _pair(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator:
        raise typer.BadParameter(f"{text!r} is not name=value.")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value
    except ValueError as error:  # of reading a whole number
        raise typer.BadParameter(f"{name!r} has too many digits: write it with an exponent, as 1e300.") from error


def _show(answer: dict[str, Any]) -> None:
    for name in ("log_probability", "probability", "density", "log_evidence", "upper_bound", "is_optimal"):
        if name in answer:
            value = answer[name]
            if isinstance(value, float) and name in LOGARITHMS and abs(value) < ROUNDING:
                value = 0.0  # a sum of probabilities that is one but for rounding
            if value is None and name in LOGARITHMS:  # JSON has no infinities
                value = float("-inf")
            out.print(f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}")
    for column, distribution in answer.get("distributions", {}).items():
        rows = [[label, f"{p:.4f}"] for label, p in distribution.items()]
        show_table(None, [column, "probability"], rows, empty="")
    if "distribution" in answer:
        rows = [[_cell(cell["values"]), f"{cell['probability']:.4f}"] for cell in answer["distribution"]]
        show_table(None, ["values", "probability"], rows[:MOST_CELLS], empty="")
        if len(rows) > MOST_CELLS:
            out.print(f"The {MOST_CELLS} most probable of {len(rows):,}; --json tells all.")
    if "moments" in answer:
        # More digits than elsewhere: a time is a number of ten digits.
        rows = [[name, f"{m['mean']:.10g}", f"{m['variance']:.6g}"] for name, m in answer["moments"].items()]
        show_table(None, ["column", "mean", "variance"], rows, empty="")
    if "assignment" in answer:
        rows = [[name, _word(value)] for name, value in answer["assignment"].items()]
        show_table(None, ["column", "most probable"], rows, empty="")
    if answer.get("rows"):
        names = list(answer["rows"][0])
        show_records(names, [[_word(row[name]) for name in names] for row in answer["rows"]])


def _cell(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}={_word(value)}" for name, value in values.items())


def _word(value: Any) -> str:
    if value is None:
        return MISSING
    return f"{value:.6g}" if isinstance(value, float) else str(value)
