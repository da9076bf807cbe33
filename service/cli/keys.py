"""`fewpass keys`: API keys of a workspace."""

from typing import Annotated

import typer

from service import product
from service.cli.shared_options import JsonOption, WorkspaceOption
from service.terminal import err, opened, out, say, settings_of, show_json, show_list
from storage.control.access import Role

app = typer.Typer(help="Make, list and revoke API keys.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="Whose key it is; lower case, such as ana or nightly-job.")]


@app.command()
def create(
    name: Name,
    role: Annotated[Role, typer.Option("--role", "-r", help="Each may also do what those before it may.")],
    days: Annotated[float | None, typer.Option("--days", min=0.001, help="Until it expires.")] = None,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Make a key and print its token, once: only a hash of it is kept."""
    from service.workspace import Workspace

    with Workspace(settings_of(workspace)) as here:
        key, token = product.create_key(here, name, role, days)
    if json_output:
        show_json(vars(key) | {"role": str(key.role), "token": token})
        return
    err.print(f"key [bold]{key.name}[/] with role {key.role}; this is the only time that its token is shown:")
    out.print(token, highlight=False, soft_wrap=True)


@app.command("list")
def list_all(workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """List the keys, also the revoked ones."""
    with opened(workspace) as here:
        items = product.list_keys(here, 1000).items
    rows = [[key.name, key.role, key.id, key.created_at, key.expires_at, key.revoked_at] for key in items]
    columns = ["key", "role", "id", "since", "expires", "revoked"]
    show_list(items, json_output, columns, rows, "no keys yet: fewpass keys create")


@app.command()
def revoke(name: Name, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """End a key; running servers refuse it within the poll interval."""
    with opened(workspace) as here:
        key = product.revoke_key(here, name)
    say(key, f"revoked {key.name}", json_output)
