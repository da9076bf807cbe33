"""`fewpass schedules`: recurring jobs."""

import json
from typing import Annotated, Any

import typer
from typer import Argument, Option

from service import product
from service.cli.jobs import build_request_or_usage_error, read_job_request
from service.cli.shared_options import JsonOption, WorkspaceOption, list_without_subcommand
from service.requests.json_values import JSONObject
from service.terminal_output import (
    command_line_settings,
    escape_rich_markup,
    open_existing_workspace,
    out,
    print_json_and_exit,
    print_json_or_text,
    print_table,
    table_cell_text,
)

app = typer.Typer(help="Create, list, change, pause and run schedules.", invoke_without_command=True)
ScheduleName = Annotated[str, Argument(help="Name of the schedule.")]
CronOption = Option("--cron", help="Minute, hour, day, month, weekday, such as '30 2 * * mon-fri'; or @daily.")
ZoneOption = Option("--timezone", help="Such as Europe/Berlin.", show_default="UTC")
MissedOption = Option("--missed", help="catch_up or skip.", show_default="catch_up")
JobOption = Option("--job", help="A job as JSON or a JSON file, as in POST /v1/jobs.")


@app.command("list")
def list_schedules_command(workspace: WorkspaceOption = None, json_output: JsonOption = False) -> None:
    """List the schedules, each with its next due time and its newest run."""
    with open_existing_workspace(workspace) as here:
        items = product.list_schedules(here, 1000).items
    print_json_and_exit(items, json_output)
    # No table: at 80 columns it would break names and ids, which people copy.
    for each in items:
        due = "paused" if each.next_due_at is None else f"next {table_cell_text(each.next_due_at)} UTC"
        words = f"{each.job['kind']}  {each.cron} ({each.timezone})  {due}"
        out.print(f"[bold]{escape_rich_markup(each.name)}[/]  {escape_rich_markup(words)}", soft_wrap=True)
        if (run := each.last_run) is not None:
            words = f"last {table_cell_text(run.due_at)} UTC {run.outcome}  {run.job_id or ''}"
            out.print(f"    {escape_rich_markup(words.rstrip())}", soft_wrap=True, highlight=False)
    if not items:
        out.print("[dim]no schedules yet: fewpass schedules create[/]")


list_without_subcommand(app, list_schedules_command)


@app.command("create")
def create_schedule_command(
    name: ScheduleName,
    cron: Annotated[str, CronOption],
    job: Annotated[str, JobOption],
    timezone: Annotated[str, ZoneOption] = "UTC",
    missed: Annotated[str, MissedOption] = "catch_up",
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Create a schedule. It takes effect only while a worker runs."""
    from service.requests.requests import ScheduleRequest
    from service.workspace import Workspace

    fields = {"name": name, "cron": cron, "timezone": timezone, "missed": missed, "job": read_job_request(job)}
    with Workspace(command_line_settings(workspace)) as here:
        _show(product.create_schedule(here, build_request_or_usage_error(ScheduleRequest, fields)), json_output)


@app.command("change")
def change_schedule_command(
    name: ScheduleName,
    cron: Annotated[str | None, CronOption] = None,
    job: Annotated[str | None, JobOption] = None,
    timezone: Annotated[str | None, ZoneOption] = None,
    missed: Annotated[str | None, MissedOption] = None,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Change a schedule. Omitted options stay unchanged."""
    from service.requests.requests import ScheduleChange

    fields: JSONObject = {"cron": cron, "timezone": timezone, "missed": missed}
    fields["job"] = None if job is None else read_job_request(job)
    with open_existing_workspace(workspace) as here:
        _show(product.change_schedule(here, name, build_request_or_usage_error(ScheduleChange, fields)), json_output)


@app.command("show")
def show_schedule_command(
    name: ScheduleName, workspace: WorkspaceOption = None, json_output: JsonOption = False
) -> None:
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


@app.command("pause")
def pause_schedule_command(
    name: ScheduleName, workspace: WorkspaceOption = None, json_output: JsonOption = False
) -> None:
    """Pause a schedule. A running job continues."""
    with open_existing_workspace(workspace) as here:
        _show(product.pause_schedule(here, name), json_output)


@app.command("resume")
def resume_schedule_command(
    name: ScheduleName, workspace: WorkspaceOption = None, json_output: JsonOption = False
) -> None:
    """Resume a schedule from now on."""
    with open_existing_workspace(workspace) as here:
        _show(product.resume_schedule(here, name), json_output)


@app.command("run")
def run_schedule_command(
    name: ScheduleName, workspace: WorkspaceOption = None, json_output: JsonOption = False
) -> None:
    """Submit the job of a schedule now."""
    with open_existing_workspace(workspace) as here:
        job = product.run_schedule(here, name)
    print_json_or_text(job, f"{job.id}: {job.state}; follow it with `fewpass jobs watch {job.id}`", json_output)


@app.command("delete")
def delete_schedule_command(
    name: ScheduleName, workspace: WorkspaceOption = None, json_output: JsonOption = False
) -> None:
    """Delete a schedule. Its jobs and models stay."""
    with open_existing_workspace(workspace) as here:
        product.delete_schedule(here, name)
    print_json_or_text({"name": name, "deleted": True}, f"deleted {name}", json_output)


def _show(schedule: Any, json_output: bool) -> None:
    print_json_and_exit(schedule, json_output)
    due = "paused" if schedule.next_due_at is None else f"next {schedule.next_due_at:%Y-%m-%d %H:%M} UTC"
    out.print(
        f"[bold]{schedule.name}[/]: {escape_rich_markup(schedule.cron)} {schedule.timezone}, {schedule.missed}, {due}"
    )
