"""Arguments and options shared by several commands."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from learners.passes.sources.file_formats import FORMAT_NAMES
from service.requests.json_values import JSONObject

Texts = list[str] | None  # of an option that may be repeated
UrisArgument = Annotated[
    list[str],
    Argument(
        help=f"Files ({FORMAT_NAMES}), globs, folders, lake tables or URIs; duckdb://… and postgresql://… with "
        "?table= or ?query=."
    ),
]


def check_local_folder_option(folder: Path | None) -> Path | None:
    """Refuse a URI where an option needs a local folder: a folder named `s3:` would be created."""
    if folder is not None and re.match(r"[a-z][a-z0-9+.-]+:", str(folder)):
        raise typer.BadParameter(f"{folder} is an address. Name a folder of this machine.")
    return folder


def read_columns_option(text: str | None) -> JSONObject:
    """Parse `--columns`: JSON, or a file of it; an empty object if it is not given."""
    if text is None:
        return {}
    try:
        content = json.loads(text if text.lstrip().startswith("{") else Path(text).read_text())
    except OSError as error:
        raise typer.BadParameter(f"{text}: {error}", param_hint="--columns") from error
    except ValueError as error:
        example = """'{"age": {"kind": "numeric"}, "row_id": "drop"}'"""
        raise typer.BadParameter(
            f"{text} is not JSON: {error}. Example: --columns {example}", param_hint="--columns"
        ) from error
    if not isinstance(content, dict):
        raise typer.BadParameter(f"{text} holds no JSON object.", param_hint="--columns")
    return content


Reference = Annotated[str, Argument(help="name, name@version or name@alias.")]
OutputOption = Annotated[
    str, Option("--out", "-o", help="Parquet or CSV file to write, here or in a store such as s3://.")
]
WorkspaceOption = Annotated[
    Path | None,
    Option(
        "--workspace",
        "-w",
        help="Workspace directory.",
        show_default="FEWPASS_WORKSPACE or ./workspace",
        callback=check_local_folder_option,
    ),
]
ColumnsOption = Annotated[str | None, Option("--columns", help="What you know about columns, as JSON or a JSON file.")]
JsonOption = Annotated[bool, Option("--json", help="Print JSON instead of text.")]
PresentOption = Annotated[
    Texts, Option("--present", help="Condition on the presence of an edge, as 'a->b'; may be repeated.")
]
AbsentOption = Annotated[
    Texts, Option("--absent", help="Condition on the absence of an edge, as 'a->b'; may be repeated.")
]
ForceOption = Annotated[bool, Option("--force", help="Replace the file if it exists.")]


def list_without_subcommand(app: typer.Typer, list_command: Callable[[Path | None, bool], None]) -> None:
    """Run the list of a group of commands where no subcommand is given."""

    @app.callback(invoke_without_command=True)
    def run(context: typer.Context, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
        if context.invoked_subcommand is None:
            list_command(workspace, json_output)
