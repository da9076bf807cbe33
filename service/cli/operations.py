"""`fewpass backup | restore | doctor`: keeping a workspace."""

from pathlib import Path
from typing import Annotated

import typer

from service.cli.shared_options import JsonOption, WorkspaceOption
from service.terminal import EXIT_FAILED, escape, opened, out, settings_of, show_json, show_list


def backup(
    target: Annotated[Path, typer.Argument(help="A new folder, or a new file ending in .tar.")],
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Copy the workspace as it is at one moment, also while servers and jobs run, and check every byte."""
    from service import product
    from service.operations.backup import back_up

    with opened(workspace) as here:
        done, uploads = back_up(here, target), product.upload_folder(here)
    if json_output:
        show_json(done)
        return
    out.print(f"[bold]{escape(done.path)}[/]: {done.n_versions} versions, {done.n_files} files, {done.n_bytes:,} bytes")
    if uploads is not None and uploads.is_dir() and not uploads.is_relative_to(here.layout.root):
        out.print(
            f"[yellow]Uploaded files are not in it[/]: they lie in {escape(str(uploads))}. Copy that folder, too."
        )
    if not done.has_control:
        out.print("[yellow]The control database is elsewhere[/]: back it up too, before this command (pg_dump).")


def restore(
    source: Annotated[Path, typer.Argument(help="A backup: folder or .tar.")],
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Make a new workspace from a backup, after checking every byte of it; an existing one is refused."""
    from service.operations.backup import restore as restore_backup

    done = restore_backup(source, settings_of(workspace).workspace)
    if json_output:
        show_json(done)
        return
    out.print(f"[bold]{escape(done.path)}[/]: {done.n_versions} versions as of {done.created_at}")
    if not done.has_control:
        out.print("[yellow]Without the control database[/]: restore it too, from before this backup (psql).")


def doctor(
    repair: Annotated[
        bool, typer.Option("--repair", help="Make damaged compiled forms anew; remove dead drafts.")
    ] = False,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Look whether everything is sound and say what to do; exit code 1 if something is not."""
    from service.operations.doctor import examine

    found = examine(settings_of(workspace), is_repairing=repair)
    rows = [[finding.state, finding.check, f"{finding.detail} {finding.remedy}".strip()] for finding in found]
    show_list(found, json_output, ["", "check", "finding"], rows)
    if any(finding.state == "failed" for finding in found):
        raise typer.Exit(EXIT_FAILED)
