"""`fewpass models`: the model registry of a workspace."""

import os
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from learners.errors import redact_uri_secrets
from learners.orders.formats.network_files import network_file_format
from learners.wording import count_with_noun
from service import product
from service.cli import exports
from service.cli.evaluation import rows_read_summary, show_evaluation_metrics
from service.cli.shared_options import ForceOption, JsonOption, Reference, WorkspaceOption, list_without_subcommand
from service.requests.json_values import JSONObject
from service.terminal_output import (
    command_line_settings,
    escape_rich_markup,
    nested_value_text,
    open_existing_workspace,
    out,
    print_json_and_exit,
    print_json_or_table,
    print_json_or_text,
    print_table,
    table_cell_text,
)

app = typer.Typer(help="List, show, alias, tag, prune, export and import models.", invoke_without_command=True)
MLFLOW = ("models:/", "runs:/")  # addresses of its models
Name = Annotated[str, Argument(help="Name of the model.")]


app.command("structure")(exports.export_structure_command)
app.command("circuit")(exports.export_circuit_command)
app.command("trace")(exports.export_trace_command)
app.command("picture")(exports.export_picture_command)
app.command("network")(exports.export_network_command)
app.command("sql")(exports.export_sql_command)


@app.command("list")
def list_models_command(workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """List the models, each with its versions and aliases."""
    with open_existing_workspace(workspace) as here:
        items = product.list_models(here, 1000).items
    rows = []
    for model in items:
        aliases = ", ".join(f"{alias} -> {version}" for alias, version in model.aliases.items())
        rows.append([model.name, model.latest_version, model.n_versions, aliases, model.created_at])
    columns = ["model", "latest", "versions", "aliases", "since"]
    print_json_or_table(items, json_output, columns, rows, "no models yet: fewpass train")


list_without_subcommand(app, list_models_command)


@app.command("show")
def show_model_command(
    reference: Reference, workspace: WorkspaceOption = None, json_output: JsonOption = False
) -> None:
    """Show one version: learner, parameters, rows, metrics, files."""
    with open_existing_workspace(workspace) as here:
        version = product.find_version(here, reference)
    print_json_and_exit(version, json_output)
    out.print(
        f"[bold]{version.name}@{version.version}[/]: {version.learner} {escape_rich_markup(nested_value_text(version.parameters))}"
    )
    files = count_with_noun(len(version.files), "file")
    out.print(f"{version.n_rows:,} rows, {files}, {version.created_at:%Y-%m-%d %H:%M}")
    out.print(escape_rich_markup(str(version.duckdb_path)), soft_wrap=True)
    for tag, value in version.tags.items():
        out.print(f"{escape_rich_markup(tag)}: {escape_rich_markup(value)}", highlight=False)
    show_evaluation_metrics(dict(version.metrics))


@app.command("versions")
def show_versions_command(name: Name, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """List the versions of a model, newest first."""
    with open_existing_workspace(workspace) as here:
        items = product.list_versions(here, name, 1000).items
    rows = [
        [
            each.version,
            each.learner,
            each.n_rows,
            *map(each.metrics.get, ("zero_one_loss", "log_loss")),
            each.created_at,
        ]
        for each in items
    ]
    print_json_or_table(items, json_output, ["version", "learner", "rows", "error", "log loss", "trained"], rows)


@app.command("alias")
def alias_model_command(
    reference: Annotated[str, Argument(help="name@version to point at.")],
    alias_name: Annotated[str, Argument(metavar="ALIAS", help="Such as champion.")],
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Point an alias at a version. Running servers follow automatically."""
    with open_existing_workspace(workspace) as here:
        version = product.find_version(here, reference)
        product.set_alias(here, version.name, alias_name, version.version)
        aliases = product.aliases_of(here, version.name)
    print_json_or_text(aliases, f"{version.name}@{alias_name} is version {version.version}", json_output)


@app.command("delete")
def delete_model_command(
    reference: Annotated[str, Argument(help="name@version; or with --all, name.")],
    is_all: Annotated[bool, Option("--all", help="All versions, aliases and history of the model.")] = False,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Delete a version and its files (refused while an alias points to it), or with --all a whole model."""
    if is_all == ("@" in reference):
        form = "the name of a model without a version" if is_all else "a version, such as name@3, or --all for all"
        raise typer.BadParameter(f"give {form}", param_hint="REFERENCE")
    with open_existing_workspace(workspace) as here:
        if is_all:
            removed = product.delete_model(here, reference)
            print_json_or_text({"removed": removed}, f"removed {', '.join(map(str, removed))}", json_output)
            return
        version = product.find_version(here, reference)
        product.delete_version(here, version.name, version.version)
    answer = {"name": version.name, "version": version.version, "deleted": True}
    print_json_or_text(answer, f"deleted {version.name}@{version.version}", json_output)


@app.command("tag")
def tag_model_command(
    reference: Reference,
    tag_name: Annotated[str, Argument(metavar="TAG", help="Such as checked-by.")],
    value: Annotated[str | None, Argument(help="Value of the tag; without one the tag is removed.")] = None,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Set or remove a tag of a version."""
    from storage.errors import NotFound

    with open_existing_workspace(workspace) as here:
        try:
            version = product.set_version_tag(here, reference, tag_name, value)
        except NotFound as error:
            if error.kind != "tag":
                raise
            raise typer.BadParameter(
                f"{reference} has no tag {tag_name!r} to remove. To set it, give its value: "
                f"fewpass models tag {reference} {tag_name} VALUE",
                param_hint="value",
            ) from None
    print_json_or_text(
        version.tags,
        f"{version.name}@{version.version}: {escape_rich_markup(nested_value_text(version.tags)) or 'no tags'}",
        json_output,
    )


@app.command("lineage")
def show_lineage_command(
    reference: Reference, workspace: WorkspaceOption = None, json_output: JsonOption = False
) -> None:
    """Show the lineage of a version: files, job, request and library versions."""
    with open_existing_workspace(workspace) as here:
        lineage = product.version_lineage(here, reference)
    print_json_and_exit(lineage, json_output)
    out.print(f"[bold]{lineage['name']}@{lineage['version']}[/], sha256 {lineage['sha256']}", soft_wrap=True)
    facts = {name: lineage[name] for name in ("job_id", "dataset", "n_rows")} | lineage["provenance"]
    passes = facts.pop("passes", [])
    print_table(None, ["what", "value"], [[name, table_cell_text(value)] for name, value in facts.items()])
    if passes:
        out.print(rows_read_summary(passes), highlight=False)
    rows = [[file["path"], file["n_rows"], file["size"], file["footer_sha256"][:12]] for file in lineage["files"]]
    print_table("files", ["path", "rows", "bytes", "footer"], rows)
    print_table("libraries", ["library", "version"], list(lineage["libraries"].items()))


@app.command("rollback")
def roll_back_model_command(
    name: Name,
    alias_name: Annotated[str, Argument(metavar="ALIAS")] = "champion",
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Move an alias back to its previous version. Repeat to go back further."""
    with open_existing_workspace(workspace) as here:
        version = product.roll_back(here, name, alias_name)
    answer = {"name": name, "alias": alias_name, "version": version}
    print_json_or_text(answer, f"{name}@{alias_name} is version {version} again", json_output)


@app.command("history")
def show_alias_history_command(name: Name, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """List the past targets of a model's aliases, newest first."""
    with open_existing_workspace(workspace) as here:
        items = product.alias_history(here, name, 1000).items
    rows = [[move.moved_at, move.alias, move.version, move.reason] for move in items]
    print_json_or_table(
        items, json_output, ["moved (UTC)", "alias", "version", "reason"], rows, "no alias has been set yet"
    )


@app.command("promotions")
def show_promotions_command(name: Name, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """List the decisions between champion and challenger, newest first."""
    with open_existing_workspace(workspace) as here:
        items = product.list_promotions(here, name, 1000).items
    rows = [
        [each.decided_at, each.challenger, each.champion, "yes" if each.is_promoted else "no", each.reason]
        for each in items
    ]
    print_json_or_table(
        items, json_output, ["decided (UTC)", "challenger", "champion", "promoted", "reason"], rows, "none yet"
    )


@app.command("retention")
def set_retention_command(
    name: Name,
    keep: Annotated[int | None, Option("--keep", min=1, help="Number of newest versions to keep.")] = None,
    keep_all: Annotated[bool, Option("--all", help="Keep all versions.")] = False,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Show or set how many versions of a model are kept. Versions with an alias are always kept."""
    if keep is not None and keep_all:
        raise typer.BadParameter("Give --keep or --all.", param_hint="--keep")
    with open_existing_workspace(workspace) as here:
        if keep is not None or keep_all:
            product.set_retention(here, name, keep)
        n_kept = product.retention_of(here, name)
    text = "all versions are kept" if n_kept is None else f"the newest {n_kept} versions and aliased ones are kept"
    print_json_or_text({"keep": n_kept}, text, json_output)


@app.command("prune")
def prune_models_command(
    name: Name,
    keep: Annotated[
        int | None, Option("--keep", min=1, help="Number of newest versions to keep.", show_default="its retention")
    ] = None,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Remove old versions and their files, never one that an alias points to."""
    with open_existing_workspace(workspace) as here:
        removed = product.prune_model_versions(here, name, keep)
    text = f"removed {', '.join(map(str, removed))}" if removed else "nothing to remove"
    print_json_or_text({"removed": removed}, text, json_output)


@app.command("export")
def export_model_command(
    reference: Reference,
    output: Annotated[str, Option("--out", "-o", help="The file to write; or models:/NAME, to register it in MLflow.")],
    force: ForceOption = False,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Write a version to one file that `import` accepts, or register it in MLflow."""
    with open_existing_workspace(workspace) as here:
        answer: JSONObject = {}
        if output.startswith(MLFLOW):
            version, place = product.export_to_mlflow(here, reference, output)
        else:
            version, answer["bytes"] = product.write_export(here, reference, output, replace=force)
            place = redact_uri_secrets(output)
    size = f", {answer['bytes']:,} bytes" if answer else ""
    answer = {"model": version.name, "version": version.version, "out": place} | answer
    print_json_or_text(answer, f"{version.name}@{version.version} -> {escape_rich_markup(place)}{size}", json_output)


@app.command("import")
def import_model_command(
    source: Annotated[
        str,
        Argument(
            help="A file that `export` or Python's `save` has written, a network as .bif, .xmlbif, .bifxml, .xml, .xdsl or .sem, or a "
            "model that fewpass has logged to MLflow, as models:/NAME/VERSION.",
            metavar="PATH",
        ),
    ],
    name: Annotated[
        str | None, Option("--name", help="Name of the model; required for a network.", show_default="as exported")
    ] = None,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Import an exported version or a network as the next version of a model, after checking all of it."""
    from service.workspace import Workspace

    path, is_logged = Path(source), source.startswith(MLFLOW)
    if not is_logged and not os.path.isfile(path):  # noqa: PTH113  # also of a name too long for a file
        raise typer.BadParameter(f"there is no file {source}", param_hint="PATH")
    is_network = not is_logged and network_file_format(path) is not None
    if is_network and name is None:
        raise typer.BadParameter("name the model: --name NAME is required for a network", param_hint="--name")
    with Workspace(command_line_settings(workspace)) as here:
        if is_network and name is not None:
            version = product.import_network(here, path, name)
        elif is_logged:
            version = product.import_from_mlflow(here, source, name)
        else:
            version = product.import_version(here, path, name)
    print_json_or_text(version, f"imported as {version.name}@{version.version}", json_output)
