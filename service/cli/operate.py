"""`fewpass serve | worker | demo | precompile | backup | restore | doctor`: long-running processes and maintenance of a
workspace.
"""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from service import product
from service.cli.shared_options import JsonOption, WorkspaceOption, check_local_folder_option
from service.terminal_output import (
    EXIT_FAILED,
    command_line_settings,
    err,
    escape_rich_markup,
    open_existing_workspace,
    out,
    print_json_and_exit,
    print_json_or_table,
)


def serve_command(
    host: Annotated[str | None, Option("--host", help="Address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[int | None, Option("--port", "-p", help="Port; 0 takes a free one.", show_default="8000")] = None,
    workers: Annotated[int | None, Option("--workers", min=1, help="Serving processes.", show_default="1")] = None,
    job_workers: Annotated[
        int | None, Option("--job-workers", min=0, help="Job worker processes.", show_default="1")
    ] = None,
    predict_only: Annotated[
        bool | None,
        Option(
            "--predict-only/--no-predict-only",
            help="Serve predictions only, without the control plane and jobs.",
            show_default="no-predict-only",
        ),
    ] = None,
    workspace: WorkspaceOption = None,
    json_output: Annotated[bool, Option("--json", help="Log JSON lines, even to a terminal.")] = False,
) -> None:
    """Serve predictions and the REST API, and run jobs in worker processes."""
    import os
    import sys

    from service.processes.supervisor import run_server

    is_for_people = sys.stderr.isatty() and "FEWPASS_LOG_FORMAT" not in os.environ
    run_server(
        command_line_settings(
            workspace,
            host=host,
            port=port,
            workers=workers,
            job_workers=job_workers,
            predict_only=predict_only,
            log_format="json" if json_output else "console" if is_for_people else None,
        )
    )


def worker_command(
    workspace: WorkspaceOption = None,
    parent: Annotated[int | None, Option("--parent", hidden=True, help="Process that must stay alive.")] = None,
    json_output: Annotated[bool, Option("--json", help="Log JSON lines, whatever the environment says.")] = False,
) -> None:
    """Run the jobs of a workspace without serving."""
    from service.processes.supervisor import run_worker

    run_worker(command_line_settings(workspace, log_format="json" if json_output else None), parent)


def demo_command(
    rows: Annotated[int, Option("--rows", min=10_000, help="Orders to learn from.")] = 500_000,
    output: Annotated[
        Path, Option("--out", help="Folder for the picture and results.", callback=check_local_folder_option)
    ] = Path("demo-output"),
    seed: Annotated[int, Option("--seed", min=0, help="Seed of the orders.")] = 0,
    json_output: JsonOption = False,
) -> None:
    """Learn from more rows than memory may hold, refresh, forget, serve, and show the results."""
    from service.operations.demo import run_demo

    run_demo(rows, output, seed, json_output)


def precompile_command(
    processes: Annotated[
        int | None,
        Option("--processes", min=1, help="Number of processes that compile at once.", show_default="all cores"),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Compile every kernel that trainings and requests use, so that none of them waits for the compiler."""
    from service.operations.precompile import precompile_in_processes
    from service.settings import Settings, available_threads
    from service.terminal_output import COMPILING, out

    if not json_output:
        err.print(COMPILING)
    seconds = precompile_in_processes(processes or available_threads(Settings()))
    print_json_and_exit({"seconds": seconds}, json_output)
    out.print(f"All kernels are compiled ({seconds:.0f} s).", highlight=False)


def backup_command(
    target: Annotated[Path, Argument(help="A new folder, or a new file ending in .tar.")],
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Copy a consistent snapshot of the workspace, even while servers and jobs run, and check every byte."""
    from service.operations.backup import back_up_workspace

    with open_existing_workspace(workspace) as here:
        done, uploads = back_up_workspace(here, target), product.upload_folder(here)
    print_json_and_exit(done, json_output)
    out.print(
        f"[bold]{escape_rich_markup(done.path)}[/]: {done.n_versions} versions, {done.n_files} files, {done.n_bytes:,} bytes"
    )
    if uploads is not None and uploads.is_dir() and not uploads.is_relative_to(here.layout.root):
        out.print(
            f"[yellow]Uploaded files are not in it[/]: they lie in {escape_rich_markup(str(uploads))}. Copy that folder, too."
        )
    if not done.has_control:
        out.print("[yellow]The control database is elsewhere[/]: back it up too, before this command (pg_dump).")


def restore_command(
    source: Annotated[Path, Argument(help="A backup: folder or .tar.")],
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Create a new workspace from a backup after checking every byte of it. An existing workspace is refused."""
    from service.operations.backup import restore_workspace as restore_backup

    done = restore_backup(source, command_line_settings(workspace).workspace)
    print_json_and_exit(done, json_output)
    out.print(f"[bold]{escape_rich_markup(done.path)}[/]: {done.n_versions} versions as of {done.created_at}")
    if not done.has_control:
        out.print(
            "[yellow]The backup lacks the control database[/]: restore it, too, from a dump made before this backup (psql)."
        )


def doctor_command(
    repair: Annotated[
        bool, Option("--repair", help="Rebuild damaged compiled models and remove abandoned drafts.")
    ] = False,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Check the workspace and its surroundings and print remedies. The exit code is 1 if a check fails."""
    from service.operations.doctor import run_doctor_checks

    findings = run_doctor_checks(command_line_settings(workspace), is_repairing=repair)
    rows = [[finding.state, finding.check, f"{finding.detail} {finding.remedy}".strip()] for finding in findings]
    print_json_or_table(findings, json_output, ["", "check", "finding"], rows)
    if any(finding.state == "failed" for finding in findings):
        raise typer.Exit(EXIT_FAILED)
