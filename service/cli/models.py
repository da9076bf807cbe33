"""`fewpass models`: the registry of a workspace."""

from typing import Annotated, Any

import typer

from service.cli.learning import show_metrics
from service.cli.output import JsonOption, WorkspaceOption, escape, out, settings_of, show_json, show_table, text_of

app = typer.Typer(help="List, show, alias and delete models.", invoke_without_command=True)
Reference = Annotated[str, typer.Argument(help="name, name@version or name@alias.")]
Name = Annotated[str, typer.Argument(help="Name of the model.")]


@app.callback(invoke_without_command=True)
def list_all(context: typer.Context, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """List the models, unless a subcommand is given."""
    from service.workspace import Workspace

    if context.invoked_subcommand is not None:
        return
    with Workspace(settings_of(workspace)) as here:
        items = here.models(1000).items
    if json_output:
        show_json(items)
        return
    show_table(
        None,
        ["model", "latest", "versions", "aliases", "since"],
        [
            [
                model.name,
                model.latest_version,
                model.n_versions,
                ", ".join(f"{alias} -> {version}" for alias, version in model.aliases.items()),
                f"{model.created_at:%Y-%m-%d %H:%M}",
            ]
            for model in items
        ],
        empty="no models yet: fewpass train",
    )


@app.command()
def show(reference: Reference, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """Show one version: learner, parameters, rows, metrics, files."""
    from service.workspace import Workspace

    with Workspace(settings_of(workspace)) as here:
        version = here.model(reference)
    if json_output:
        show_json(version)
        return
    out.print(f"[bold]{version.name}@{version.version}[/]: {version.learner} {dict(version.parameters)}")
    out.print(f"{version.n_rows:,} rows, {len(version.files)} files, {version.created_at:%Y-%m-%d %H:%M}")
    out.print(escape(str(version.duckdb_path)), soft_wrap=True)
    show_metrics(dict(version.metrics))


@app.command()
def versions(name: Name, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """List the versions of a model, newest first."""
    from service.workspace import Workspace

    with Workspace(settings_of(workspace)) as here:
        items = here.versions(name, 1000).items
    if json_output:
        show_json(items)
        return
    show_table(
        None,
        ["version", "learner", "rows", "error", "log loss", "trained"],
        [
            [
                version.version,
                version.learner,
                version.n_rows,
                version.metrics.get("zero_one_loss"),
                version.metrics.get("log_loss"),
                f"{version.created_at:%Y-%m-%d %H:%M}",
            ]
            for version in items
        ],
    )


@app.command()
def structure(reference: Reference, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """Show the graph of a model: the parents of each attribute."""
    from service.workspace import Workspace

    with Workspace(settings_of(workspace)) as here:
        found = here.structure(reference)
    if json_output:
        show_json(found)
        return
    for edge in found["edges"]:
        out.print(f"{escape(str(edge['from']))} -> {escape(str(edge['to']))}", highlight=False)
    facts = dict(found.get("facts", {}))
    if selection := facts.pop("selection", None):
        show_selection(selection)
    shown = [[name, text_of(value)] for name, value in facts.items() if name != "concentrations"]
    if shown:
        show_table("training", ["fact", "value"], shown)


def show_selection(selection: dict[str, Any]) -> None:
    """SkDB's mean losses, a column per number of parents, at a dozen prefixes of the attributes; the least is marked."""
    losses = selection["mean_loss"]
    n = len(losses[0]) - 1
    chosen = selection["n_attributes"], selection["k"]
    rows = [
        [str(i), *(f"{row[i]:.4f}{'*' if (i, k) == chosen else ''}" for k, row in enumerate(losses))]
        for i in sorted({round(n * step / 11) for step in range(12)} | {chosen[0]})
    ]
    show_table("mean leave-one-out loss (* chosen)", ["attributes", *(f"k = {k}" for k in range(len(losses)))], rows)


@app.command()
def alias(
    reference: Annotated[str, typer.Argument(help="name@version to point at.")],
    alias_name: Annotated[str, typer.Argument(metavar="ALIAS", help="Such as champion.")],
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Point an alias at a version; running servers follow by themselves."""
    from service.workspace import Workspace

    with Workspace(settings_of(workspace)) as here:
        version = here.model(reference)
        here.set_alias(version.name, alias_name, version.version)
        found = here.aliases(version.name)
    if json_output:
        show_json(found)
    else:
        out.print(f"{version.name}@{alias_name} is version {version.version}")


@app.command()
def delete(reference: Reference, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """Delete one version and its files; refused while an alias points at it."""
    from service.workspace import Workspace

    with Workspace(settings_of(workspace)) as here:
        version = here.model(reference)
        here.delete_version(version.name, version.version)
    if json_output:
        show_json({"name": version.name, "version": version.version, "deleted": True})
    else:
        out.print(f"deleted {version.name}@{version.version}")
