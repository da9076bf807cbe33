"""`fewpass receipts`: signed receipts of forgotten rows."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Exit, Option

from service import product
from service.cli.exports import TextOutput
from service.cli.shared_options import ForceOption, JsonOption, WorkspaceOption
from service.terminal_output import (
    err,
    open_existing_workspace,
    print_json_or_table,
    print_json_or_text,
)

app = typer.Typer(help="List, show and verify receipts of forgotten rows.", invoke_without_command=True)
Limit = Annotated[int, Option("--limit", "-n", min=1, max=1000, help="Number of receipts, newest first.")]


@app.callback(invoke_without_command=True)
def receipts_command(
    context: typer.Context, limit: Limit = 50, workspace: WorkspaceOption = None, json_output: JsonOption = False
) -> None:
    """List the receipts, unless a subcommand is given."""
    if context.invoked_subcommand is None:
        list_receipts_command(limit, workspace, json_output)


@app.command("list")
def list_receipts_command(
    limit: Limit = 50,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """List the receipts, newest first."""
    with open_existing_workspace(workspace) as here:
        items = product.list_receipts(here, limit).items
    rows = [[item.id, item.at, item.subject, item.n_rows, item.proof] for item in items]
    columns = ["id", "at", "data", "rows", "proof"]
    print_json_or_table(items, json_output, columns, rows, "no receipts yet: fewpass forget writes one")


@app.command("show")
def show_receipt_command(
    receipt: Annotated[str, Argument(metavar="ID", help="Id of the receipt, which is that of the job.")],
    output: TextOutput = None,
    force: ForceOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Print a receipt as it was signed, one line of JSON, or write it to a file."""
    with open_existing_workspace(workspace) as here:
        _print_or_write(product.read_receipt(here, receipt), output, force)


@app.command("key")
def show_key_command(output: TextOutput = None, force: ForceOption = False, workspace: WorkspaceOption = None) -> None:
    """Print the public key that verifies the receipts of this workspace (PEM), or write it to a file."""
    with open_existing_workspace(workspace) as here:
        _print_or_write(product.receipts_public_key(here), output, force)


def _print_or_write(content: bytes, output: str | None, force: bool) -> None:
    if output is None:
        typer.echo(content, nl=False)
    else:
        product.write_output(output, lambda: content, replace=force)


@app.command("verify")
def verify_receipt_command(
    file: Annotated[Path, Argument(exists=True, dir_okay=False, help="File of a receipt.")],
    key: Annotated[
        Path | None,
        Option("--key", exists=True, dir_okay=False, help="File of the public key.", show_default="of this workspace"),
    ] = None,
    where: Annotated[
        str | None,
        Option("--where", help="Also check that the receipt belongs to this condition; needs the workspace."),
    ] = None,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Verify the signature of a receipt; exit 1 if it was altered, or another key signed it."""
    from storage.errors import InvalidReceipt

    data, public = file.read_bytes(), None if key is None else key.read_bytes()
    try:
        if public is not None and where is None:
            content = product.verify_receipt(data, public)
        else:
            with open_existing_workspace(workspace) as here:
                content = product.verify_receipt(data, public or product.receipts_public_key(here))
                if where is not None:
                    product.check_receipt_condition(here, content, where)
    except InvalidReceipt as error:
        err.print(str(error), highlight=False, soft_wrap=True)
        raise Exit(1) from None
    rows, status = content["rows"], content["proof"]["status"]
    words = (
        f"The receipt holds: {rows['forgotten']:,} of {rows['before']:,} rows forgotten at {content['at']}, {status}."
    )
    print_json_or_text(content, words, json_output)
