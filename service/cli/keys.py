"""`fewpass keys`: API keys and their roles for REST."""

from typing import Annotated

import typer
from typer import Argument, Option

from service import product
from service.cli.shared_options import JsonOption, WorkspaceOption, list_without_subcommand
from service.terminal_output import (
    command_line_settings,
    err,
    open_existing_workspace,
    out,
    print_json_and_exit,
    print_json_or_table,
    print_json_or_text,
)
from storage.control.api_keys_and_sessions import Role

app = typer.Typer(help="Create, list and revoke API keys.", invoke_without_command=True)
KeyName = Annotated[str, Argument(help="Name of the key, in lower case, such as ana or nightly-job.")]


@app.command("create")
def create_key_command(
    name: KeyName,
    role: Annotated[Role, Option("--role", "-r", help="Each role includes those before it.")],
    days: Annotated[float | None, Option("--days", min=0.001, help="Days until the key expires.")] = None,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Create an API key and print its token. The token is shown only once: only its hash is stored."""
    from service.workspace import Workspace

    settings = command_line_settings(workspace)
    with Workspace(settings) as here:
        key, token = product.create_key(here, name, role, days)
    print_json_and_exit(vars(key) | {"role": str(key.role), "token": token}, json_output)
    err.print(f"key [bold]{key.name}[/] with role {key.role}; this is the only time that its token is shown:")
    out.print(token, highlight=False, soft_wrap=True)
    if not settings.needs_keys:
        err.print(
            f"A server on {settings.host}, which only this machine reaches, does not require keys. FEWPASS_REQUIRE_KEYS=true requires them.",
            highlight=False,
        )


@app.command("list")
def list_keys_command(workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """List the API keys, including revoked ones."""
    with open_existing_workspace(workspace) as here:
        items = product.list_keys(here, 1000).items
    rows = [[key.name, key.role, key.id, key.created_at, key.expires_at, key.revoked_at] for key in items]
    columns = ["key", "role", "id", "since", "expires", "revoked"]
    print_json_or_table(items, json_output, columns, rows, "no keys yet: fewpass keys create")


list_without_subcommand(app, list_keys_command)


@app.command("revoke")
def revoke_key_command(name: KeyName, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """Revoke a key. Running servers refuse it within the poll interval."""
    with open_existing_workspace(workspace) as here:
        key = product.revoke_key(here, name)
    print_json_or_text(key, f"revoked {key.name}", json_output)
