"""`fewpass serve | worker | demo | precompile | backup | restore | doctor | schedules | keys`: the processes that stay, and keeping a workspace."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from service import product
from service.cli.shared_options import JsonOption, WorkspaceOption, check_local_folder_option
from service.cli.watch import build_request_or_usage_error, read_job_request
from service.requests.json_values import JSONObject
from service.terminal_output import (
    EXIT_FAILED,
    command_line_settings,
    err,
    escape_rich_markup,
    open_existing_workspace,
    out,
    print_json_and_exit,
    print_json_or_table,
    print_json_or_text,
    print_table,
    table_cell_text,
)
from storage.control.api_keys_and_sessions import Role


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
            help="Without the control plane and jobs.",
            show_default="no-predict-only",
        ),
    ] = None,
    workspace: WorkspaceOption = None,
    json_output: Annotated[bool, Option("--json", help="Log JSON lines, also on a terminal.")] = False,
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
    """Run jobs of a workspace, apart from serving."""
    from service.processes.supervisor import run_worker

    run_worker(command_line_settings(workspace, log_format="json" if json_output else None), parent)


def demo_command(
    rows: Annotated[int, Option("--rows", min=10_000, help="Orders to learn from.")] = 500_000,
    output: Annotated[
        Path, Option("--out", help="Folder for pictures and results.", callback=check_local_folder_option)
    ] = Path("demo-output"),
    seed: Annotated[int, Option("--seed", min=0)] = 0,
    json_output: JsonOption = False,
) -> None:
    """Learn from more rows than memory may hold, refresh, forget, serve, and show what came out."""
    from service.operations.demo import run_demo

    run_demo(rows, output, seed, json_output)


def precompile_command(
    processes: Annotated[
        int | None, Option("--processes", min=1, help="Compile in so many at once.", show_default="all cores")
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Compile every kernel that trainings and requests run, so that none of them waits for the compiler."""
    from service.operations.precompile import precompile_in_processes
    from service.settings import Settings, available_threads
    from service.terminal_output import COMPILING, err, out

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
    """Copy the workspace as it is at one moment, also while servers and jobs run, and check every byte."""
    from service import product
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
    """Make a new workspace from a backup, after checking every byte of it; an existing one is refused."""
    from service.operations.backup import restore_workspace as restore_backup

    done = restore_backup(source, command_line_settings(workspace).workspace)
    print_json_and_exit(done, json_output)
    out.print(f"[bold]{escape_rich_markup(done.path)}[/]: {done.n_versions} versions as of {done.created_at}")
    if not done.has_control:
        out.print("[yellow]Without the control database[/]: restore it too, from before this backup (psql).")


def doctor_command(
    repair: Annotated[bool, Option("--repair", help="Make damaged compiled forms anew; remove dead drafts.")] = False,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Look whether everything is sound and say what to do; exit code 1 if something is not."""
    from service.operations.doctor import run_doctor_checks

    findings = run_doctor_checks(command_line_settings(workspace), is_repairing=repair)
    rows = [[finding.state, finding.check, f"{finding.detail} {finding.remedy}".strip()] for finding in findings]
    print_json_or_table(findings, json_output, ["", "check", "finding"], rows)
    if any(finding.state == "failed" for finding in findings):
        raise typer.Exit(EXIT_FAILED)


schedules_app = typer.Typer(help="Create, list, change, pause and run schedules.", invoke_without_command=True)
ScheduleName = Annotated[str, Argument(help="Name of the schedule.")]
CronOption = Option("--cron", help="Minute, hour, day, month, weekday, such as '30 2 * * mon-fri'; or @daily.")
ZoneOption = Option("--timezone", help="Such as Europe/Berlin.", show_default="UTC")
MissedOption = Option("--missed", help="catch_up or skip.", show_default="catch_up")
JobOption = Option("--job", help="JSON of a job, or a file of it; as in POST /v1/jobs.")


@schedules_app.callback(invoke_without_command=True)
def schedules_command(
    context: typer.Context, workspace: WorkspaceOption = None, json_output: JsonOption = False
) -> None:
    """List the schedules, unless a subcommand is given."""
    if context.invoked_subcommand is None:
        list_schedules(workspace, json_output)


@schedules_app.command("list")
def list_schedules(workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """List the schedules, each with its next time and its newest run."""
    with open_existing_workspace(workspace) as here:
        items = product.list_schedules(here, 1000).items
    rows = []
    for each in items:
        run = each.last_run
        last = (None, None) if run is None else (f"{table_cell_text(run.due_at)} {run.outcome}", run.job_id)
        rows.append([each.name, each.cron, each.timezone, each.job["kind"], each.next_due_at or "paused", *last])
    columns = ["schedule", "cron", "zone", "job", "next (UTC)", "last run", "its job"]
    print_json_or_table(items, json_output, columns, rows, "no schedules yet: fewpass schedules create")


@schedules_app.command("create")
def create_schedule(
    name: ScheduleName,
    cron: Annotated[str, CronOption],
    job: Annotated[str, JobOption],
    timezone: Annotated[str, ZoneOption] = "UTC",
    missed: Annotated[str, MissedOption] = "catch_up",
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Create a schedule; a worker must run for it to do something."""
    from service.requests.requests import ScheduleRequest
    from service.workspace import Workspace

    fields = {"name": name, "cron": cron, "timezone": timezone, "missed": missed, "job": read_job_request(job)}
    with Workspace(command_line_settings(workspace)) as here:
        _show(product.create_schedule(here, build_request_or_usage_error(ScheduleRequest, fields)), json_output)


@schedules_app.command("change")
def change_schedule(
    name: ScheduleName,
    cron: Annotated[str | None, CronOption] = None,
    job: Annotated[str | None, JobOption] = None,
    timezone: Annotated[str | None, ZoneOption] = None,
    missed: Annotated[str | None, MissedOption] = None,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Change a schedule; what is not given stays."""
    from service.requests.requests import ScheduleChange

    fields: JSONObject = {"cron": cron, "timezone": timezone, "missed": missed}
    fields["job"] = None if job is None else read_job_request(job)
    with open_existing_workspace(workspace) as here:
        _show(product.change_schedule(here, name, build_request_or_usage_error(ScheduleChange, fields)), json_output)


@schedules_app.command("show")
def show_schedule(name: ScheduleName, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """Show a schedule and its newest runs."""
    with open_existing_workspace(workspace) as here:
        schedule, runs = product.get_schedule(here, name), product.list_schedule_runs(here, name, 20).items
    print_json_and_exit(vars(schedule) | {"runs": runs}, json_output)
    _show(schedule, False)
    out.print(escape_rich_markup(json.dumps(dict(schedule.job))), soft_wrap=True)
    print_table(
        "newest runs",
        ["due (UTC)", "outcome", "job", "reason"],
        [[run.due_at, run.outcome, run.job_id, run.reason] for run in runs],
        empty="it was not due yet",
    )


@schedules_app.command("pause")
def pause_schedule(name: ScheduleName, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """Stop a schedule from being due; a job that is running goes on."""
    with open_existing_workspace(workspace) as here:
        _show(product.pause_schedule(here, name), json_output)


@schedules_app.command("resume")
def resume_schedule(name: ScheduleName, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """Let a schedule be due again from now on."""
    with open_existing_workspace(workspace) as here:
        _show(product.resume_schedule(here, name), json_output)


@schedules_app.command("run")
def run_schedule(name: ScheduleName, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """Submit the job of a schedule now."""
    with open_existing_workspace(workspace) as here:
        job = product.run_schedule(here, name)
    print_json_or_text(job, f"{job.id}: {job.state}; follow it with `fewpass jobs watch {job.id}`", json_output)


@schedules_app.command("delete")
def delete_schedule(name: ScheduleName, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """Delete a schedule; its jobs and models stay."""
    with open_existing_workspace(workspace) as here:
        product.delete_schedule(here, name)
    print_json_or_text({"name": name, "deleted": True}, f"deleted {name}", json_output)


def _show(schedule: Any, json_output: bool) -> None:
    print_json_and_exit(schedule, json_output)
    due = "paused" if schedule.next_due_at is None else f"next {schedule.next_due_at:%Y-%m-%d %H:%M} UTC"
    out.print(
        f"[bold]{schedule.name}[/]: {escape_rich_markup(schedule.cron)} {schedule.timezone}, {schedule.missed}, {due}"
    )


keys_app = typer.Typer(help="Make, list and revoke API keys.", no_args_is_help=True)
KeyName = Annotated[str, Argument(help="Whose key it is; lower case, such as ana or nightly-job.")]


@keys_app.command("create")
def create_key(
    name: KeyName,
    role: Annotated[Role, Option("--role", "-r", help="Each may also do what those before it may.")],
    days: Annotated[float | None, Option("--days", min=0.001, help="Until it expires.")] = None,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Make a key and print its token, once: only a hash of it is kept."""
    from service.workspace import Workspace

    with Workspace(command_line_settings(workspace)) as here:
        key, token = product.create_key(here, name, role, days)
    print_json_and_exit(vars(key) | {"role": str(key.role), "token": token}, json_output)
    err.print(f"key [bold]{key.name}[/] with role {key.role}; this is the only time that its token is shown:")
    out.print(token, highlight=False, soft_wrap=True)


@keys_app.command("list")
def list_keys(workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """List the keys, also the revoked ones."""
    with open_existing_workspace(workspace) as here:
        items = product.list_keys(here, 1000).items
    rows = [[key.name, key.role, key.id, key.created_at, key.expires_at, key.revoked_at] for key in items]
    columns = ["key", "role", "id", "since", "expires", "revoked"]
    print_json_or_table(items, json_output, columns, rows, "no keys yet: fewpass keys create")


@keys_app.command("revoke")
def revoke_key(name: KeyName, workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """End a key; running servers refuse it within the poll interval."""
    with open_existing_workspace(workspace) as here:
        key = product.revoke_key(here, name)
    print_json_or_text(key, f"revoked {key.name}", json_output)
